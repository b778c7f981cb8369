#include "kiln/cache/digest.hpp"

#include <gtest/gtest.h>

#include <string>

namespace kiln::cache {
namespace {

TEST(Digest, IsXxh3WithSeedZero) {
  // Published test values of XXH3-128.
  EXPECT_EQ(digest_of("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(digest_of("a"), digest_of("b"));
  const std::string text(1000, 'x');
  EXPECT_EQ(digest_of(text), digest_of(std::as_bytes(std::span(text))));
}

TEST(Digest, ReadsBackItsOwnHex) {
  const Digest digest{.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
  EXPECT_EQ(digest.hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Digest::from_hex(digest.hex()), digest);
  EXPECT_EQ(Digest::from_hex(Digest{}.hex()), Digest{});
}

TEST(Digest, ReadsNothingElse) {
  for (const char* text :
       {"", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100",
        "0123456789ABCDEFFEDCBA9876543210", "0123456789abcdeffedcba987654321g",
        "+123456789abcdeffedcba9876543210", " 123456789abcdeffedcba9876543210"})
    EXPECT_EQ(Digest::from_hex(text), std::nullopt) << text;
}

}  // namespace
}  // namespace kiln::cache
