#include "kiln/cache/digest.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cache/sha256_instructions.hpp"

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

std::string sha256_by(Sha256Function function, std::string_view text) {
  std::array<unsigned char, 32> digest{};
  // Exactly as long as the text, so that a sanitizer sees a read beyond its end.
  const std::vector<unsigned char> bytes(text.begin(), text.end());
  function(digest.data(), bytes.data(), bytes.size());
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

// The examples of FIPS 180-2, appendix B, and the digest of nothing.
TEST(Sha256Instructions, TheStandardsExamples) {
  const auto function = sha256_by_instructions();
  if (function == nullptr) GTEST_SKIP() << "the processor has no instructions for SHA-256";
  EXPECT_EQ(sha256_by(function, ""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_by(function, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_by(function, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_by(function, std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Instructions, EqualsLibsodiumAtEveryLength) {
  const auto function = sha256_by_instructions();
  void* const library = ::dlopen("libsodium.so.23", RTLD_NOW | RTLD_LOCAL);
  if (function == nullptr || library == nullptr) GTEST_SKIP() << "there is nothing to compare";
  const auto theirs = reinterpret_cast<Sha256Function>(::dlsym(library, "crypto_hash_sha256"));
  ASSERT_NE(theirs, nullptr);
  std::string text;
  for (unsigned state = 1; text.size() <= 600;) {
    EXPECT_EQ(sha256_by(function, text), sha256_by(theirs, text)) << text.size();
    text += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  }
  ::dlclose(library);
}

}  // namespace
}  // namespace kiln::cache
