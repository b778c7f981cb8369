// The reader of plain JSON takes a part of what the full parser takes, and tells of it the same.
#include "runtime/plain_json.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kiln {
namespace {

using Json = nlohmann::json;

// Writes down what it is told.
class Witness {
 public:
  std::string told;

  bool key(std::string& name) { return tell("key " + name); }
  bool string(std::string& value) { return tell("string " + std::exchange(value, "moved")); }
  bool boolean(bool value) { return tell(value ? "true" : "false"); }
  bool number_unsigned(std::uint64_t value) { return tell("number " + std::to_string(value)); }
  bool number_integer(std::int64_t) { return tell("negative"); }
  bool number_float(double, const std::string&) { return tell("float"); }
  bool null() { return tell("null"); }
  bool binary(const Json::binary_t&) { return false; }
  bool start_object(std::size_t size) { return tell("{" + std::to_string(size)); }
  bool end_object() { return tell("}"); }
  bool start_array(std::size_t size) { return tell("[" + std::to_string(size)); }
  bool end_array() { return tell("]"); }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

 private:
  bool tell(const std::string& what) {
    told += what + '\n';
    return what != "string enough";
  }
};

std::optional<std::string> plainly(std::string_view text) {
  Witness witness;
  if (!PlainJson(text, witness).read()) return std::nullopt;
  return witness.told;
}

std::optional<std::string> by_the_full_parser(std::string_view text) {
  Witness witness;
  if (!Json::sax_parse(text, &witness)) return std::nullopt;
  return witness.told;
}

constexpr std::string_view kPlain =
    R"({"a":"","log":"x y~","n":0,"list":[1,22,[]],"o":{"t":true,"f":false},"m":999999999999999999})";

TEST(PlainJson, TellsWhatTheFullParserTells) {
  for (const auto text : {kPlain, std::string_view("[]"), std::string_view("{}"),
                          std::string_view("[true,false]"), std::string_view(R"("text")")}) {
    ASSERT_TRUE(plainly(text)) << text;
    EXPECT_EQ(plainly(text), by_the_full_parser(text)) << text;
  }
}

TEST(PlainJson, LeavesToTheFullParserWhatIsNotPlain) {
  for (const auto* text : {"",
                           " {}",
                           "{} ",
                           "{ }",
                           R"({"a": 1})",
                           "[1 ]",
                           "[-1]",
                           "[1.5]",
                           "[1e3]",
                           "[01]",
                           "7",
                           "[1000000000000000000]",
                           "[18446744073709551616]",
                           "null",
                           "[null]",
                           R"("\n")",
                           R"("\u0041")",
                           "\"\xC3\xA9\"",
                           "\"\x7F\"",
                           "\"\t\"",
                           "[[[[[[[[[[1]]]]]]]]]]"})
    EXPECT_FALSE(plainly(text)) << text;
}

TEST(PlainJson, EndsWhenItsHandlerHasHadEnough) {
  for (const auto* text : {R"(["enough",1])", R"({"a":"enough"})"}) {
    EXPECT_FALSE(plainly(text)) << text;
    EXPECT_FALSE(by_the_full_parser(text)) << text;
  }
}

TEST(PlainJson, OfDamagedTextItTakesNothingThatTheFullParserWouldNot) {
  const std::string good(kPlain);
  std::size_t taken = 0;
  const auto check = [&](const std::string& text) {
    const auto told = plainly(text);
    taken += told.has_value();
    if (told) {
      EXPECT_EQ(told, by_the_full_parser(text)) << text;
    }
  };
  for (std::size_t at = 0; at < good.size(); ++at) {
    check(good.substr(0, at));
    check(good.substr(at));
    check(std::string(good).erase(at, 1));
    check(std::string(good).insert(at, 1, good[at]));
    for (int c = 0; c < 256; ++c) {
      auto text = good;
      text[at] = static_cast<char>(c);
      check(text);
    }
  }
  EXPECT_GT(taken, good.size());  // other letters in a text, other digits
}

}  // namespace
}  // namespace kiln
