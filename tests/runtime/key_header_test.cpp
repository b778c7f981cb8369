#include "runtime/key_header.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

namespace kiln {
namespace {

enum class Mode : unsigned char { slow = 3 };

struct Key {
  bool on = true;
  std::int8_t a = -128;
  std::uint8_t b = 255;
  std::int16_t c = -32768;
  std::uint16_t d = 65535;
  int heads = 16;
  unsigned e = std::numeric_limits<unsigned>::max();
  std::int64_t f = std::numeric_limits<std::int64_t>::min();
  std::uint64_t g = std::numeric_limits<std::uint64_t>::max();
  Mode mode = Mode::slow;
  bool operator==(const Key&) const = default;
  static constexpr auto fields() {
    return std::tuple{KeyField{"on", &Key::on}, KeyField{"a", &Key::a},
                      KeyField{"b", &Key::b},   KeyField{"c", &Key::c},
                      KeyField{"d", &Key::d},   KeyField{"heads", &Key::heads},
                      KeyField{"e", &Key::e},   KeyField{"f", &Key::f},
                      KeyField{"g", &Key::g},   KeyField{"mode", &Key::mode}};
  }
};

TEST(KeyHeader, WritesEachTypeAsDeviceCodeNeedsIt) {
  const auto text = make_key_header(key_values(Key{}));
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, R"(#pragma once
namespace key {
inline constexpr bool on = true;
inline constexpr signed char a = -128;
inline constexpr unsigned char b = 255;
inline constexpr short c = -32768;
inline constexpr unsigned short d = 65535;
inline constexpr int heads = 16;
inline constexpr unsigned int e = 4294967295U;
inline constexpr long long f = -9223372036854775807LL - 1;
inline constexpr unsigned long long g = 18446744073709551615ULL;
inline constexpr unsigned char mode = 3;
}  // namespace key
)");
}

TEST(KeyHeader, WritesAnEmptyKey) {
  const auto text = make_key_header({});
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "#pragma once\nnamespace key {\n}  // namespace key\n");
}

TEST(KeyHeader, RefusesWhatIsNoFieldOfAKey) {
  for (const auto& value : {
           KeyValue{"", "i32", "1"},
           KeyValue{"1a", "i32", "1"},
           KeyValue{"a b", "i32", "1"},
           KeyValue{"a;int b", "i32", "1"},
           KeyValue{"int", "i32", "1"},
           KeyValue{"co_await", "i32", "1"},
           KeyValue{"a__b", "i32", "1"},
           KeyValue{"_A", "i32", "1"},
           KeyValue{"a", "int", "1"},
           KeyValue{"a", "f32", "1"},
           KeyValue{"a", "i32", ""},
           KeyValue{"a", "i32", "1; int b = 2"},
           KeyValue{"a", "i32", "01"},
           KeyValue{"a", "i32", "+1"},
           KeyValue{"a", "i32", "-0"},
           KeyValue{"a", "i32", "2147483648"},
           KeyValue{"a", "i32", "-2147483649"},
           KeyValue{"a", "i8", "128"},
           KeyValue{"a", "i64", "9223372036854775808"},
           KeyValue{"a", "u8", "256"},
           KeyValue{"a", "u32", "-1"},
           KeyValue{"a", "u64", "18446744073709551616"},
           KeyValue{"a", "bool", "1"},
       }) {
    const auto text = make_key_header(std::vector{value});
    ASSERT_FALSE(text) << value.name << ' ' << value.type << ' ' << value.value;
    EXPECT_EQ(text.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(text.error().message().find('"' + value.name + '"'), std::string::npos);
  }
}

TEST(KeyHeader, RefusesANameThatStandsTwice) {
  EXPECT_FALSE(make_key_header(std::vector{KeyValue{"a", "i32", "1"}, KeyValue{"a", "i32", "1"}}));
}

}  // namespace
}  // namespace kiln
