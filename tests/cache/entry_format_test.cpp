#include "cache/entry_format.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kEntryKey = "k=1";
constexpr std::string_view kFacts = "{}";
constexpr std::string_view kEntryPayload =
    "\x7f"
    "ELF";

std::string encode(std::string_view key, std::string_view facts, std::string_view payload) {
  const auto head = encode_head(key, facts, std::as_bytes(std::span(payload)));
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()) +
         std::string(payload);
}

Found decode(std::string_view bytes, const Digest& name,
             std::optional<std::string_view> key = std::nullopt) {
  std::shared_ptr<std::byte[]> buffer(new std::byte[bytes.size()]);
  std::memcpy(buffer.get(), bytes.data(), bytes.size());
  return EntryDecoder::decode(std::move(buffer), bytes.size(), name, key);
}

std::string damage_of(std::string_view bytes) {
  const Found found = decode(bytes, digest_of(kEntryKey), kEntryKey);
  EXPECT_NE(found.entry.has_value(), !found.damage.empty());
  return found.damage;
}

template <class Integer>
std::string changed(std::string bytes, std::size_t offset, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    bytes[offset + i] = static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char signed_byte : bytes) {
    const auto byte = static_cast<unsigned char>(signed_byte);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 0xF];
  }
  return text;
}

TEST(EntryFormat, HasGoldenBytes) {
  // The worked example of cache/FORMAT.md.
  EXPECT_EQ(hex(encode(kEntryKey, kFacts, kEntryPayload)),
            "4b494c4e0d0a1a0a"
            "01000000"
            "50000000"
            "00000000"
            "00000000"
            "0300000000000000"
            "0200000000000000"
            "0400000000000000"
            "bb62c8a2372c5741471697d84c9d7168"
            "40764e22eb748fa88c82fe354c8c0ea6"
            "6b3d31"
            "7b7d"
            "7f454c46");
  EXPECT_EQ(digest_of(kEntryKey).hex(), "6236926d616f7795afbe6c57f470b31c");
}

TEST(EntryFormat, GivesBackWhatWasEncoded) {
  for (const std::size_t size : {0u, 1u, 15u, 16u, 240u, 241u, 4096u, 100'000u}) {
    const std::string key = "key " + std::string(size / 3, 'k');
    const std::string facts(size / 7, 'f');
    const std::string payload(size, 'p');
    const Found found = decode(encode(key, facts, payload), digest_of(key), key);
    ASSERT_TRUE(found.entry) << found.damage;
    EXPECT_EQ(found.entry->key_text(), key);
    EXPECT_EQ(found.entry->facts(), facts);
    ASSERT_EQ(found.entry->payload().size(), payload.size());
    EXPECT_EQ(std::memcmp(found.entry->payload().data(), payload.data(), payload.size()), 0);
  }
}

TEST(EntryFormat, RefusesEveryFlippedBit) {
  const std::string payload(5000, '\x5a');
  for (const std::string_view body : {kEntryPayload, std::string_view(payload)}) {
    const std::string good = encode(kEntryKey, kFacts, body);
    ASSERT_EQ(damage_of(good), "");
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      ASSERT_NE(damage_of(bad), "") << "bit " << bit;
    }
  }
}

TEST(EntryFormat, RefusesEveryTruncationAndWhatIsAppended) {
  const std::string good = encode(kEntryKey, kFacts, std::string(300, 'x'));
  for (std::size_t size = 0; size < good.size(); ++size)
    ASSERT_NE(damage_of(std::string_view(good).substr(0, size)), "") << size;
  EXPECT_EQ(damage_of(""), "empty file");
  EXPECT_EQ(damage_of(good.substr(0, 100)), "cut short: 100 of 385 bytes");
  EXPECT_EQ(damage_of(good + std::string(1, '\0')), "1 bytes of junk at its end");
  EXPECT_EQ(damage_of(good + good), "385 bytes of junk at its end");
}

TEST(EntryFormat, SaysWhatIsWrong) {
  const std::string good = encode(kEntryKey, kFacts, kEntryPayload);
  std::string last_byte = good;
  last_byte.back() ^= 1;
  std::string key_byte = good;
  key_byte[kHeaderBytes] ^= 1;
  EXPECT_EQ(damage_of("#!/bin/sh" + std::string(200, '\n')), "not a Kiln entry");
  EXPECT_EQ(damage_of(last_byte), "payload digest differs");
  EXPECT_EQ(damage_of(key_byte), "header digest differs");
  EXPECT_EQ(damage_of(encode("k=2", kFacts, kEntryPayload)), "holds the entry of another key");
  EXPECT_EQ(decode(good, digest_of(kEntryKey), "k=2").damage, "key text differs");
  EXPECT_EQ(damage_of(changed(good, 8, std::uint32_t{0})),
            "made by an older Kiln (schema 0, this one reads 1)");
  EXPECT_EQ(damage_of(changed(good, 8, std::uint32_t{2})),
            "made by a newer Kiln (schema 2, this one reads 1)");
  EXPECT_EQ(damage_of(changed(good, 12, std::uint32_t{96})),
            "declares a header of 96 bytes, not 80");
  EXPECT_EQ(damage_of(changed(good, 16, std::uint32_t{1})), "made by a newer Kiln (codec 1)");
  EXPECT_EQ(damage_of(changed(good, 20, std::uint32_t{64})),
            "made by a newer Kiln (a signature of 64 bytes)");
}

TEST(EntryFormat, RefusesHugeDeclaredSizesByTheHeaderAlone) {
  const std::string good = encode(kEntryKey, kFacts, kEntryPayload);
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  for (const std::size_t offset : {24u, 32u, 40u}) {
    for (const std::uint64_t size : {kHuge, kHuge - 80, kHuge / 2, kMaxPayloadBytes + 1}) {
      const std::string bad = changed(good, offset, size);
      const auto start = std::as_bytes(std::span(bad)).first(kHeaderBytes);
      EXPECT_NE(header_damage(start, bad.size()).find("over the limit"), std::string::npos);
    }
    // Within the limits, but more than the file holds.
    const std::string bad = changed(good, offset, kMaxKeyBytes);
    const auto start = std::as_bytes(std::span(bad)).first(kHeaderBytes);
    EXPECT_NE(header_damage(start, bad.size()).find("cut short"), std::string::npos);
  }
  // Sizes that would give the right sum if it wrapped.
  const std::string wrapped = changed(changed(good, 24, kHuge), 32, std::uint64_t{6});
  EXPECT_NE(damage_of(wrapped), "");
}

TEST(EntryFormat, SurvivesRandomBytes) {
  std::mt19937 random(1);
  const std::string good = encode(kEntryKey, kFacts, std::string(200, 'x'));
  for (int round = 0; round < 20'000; ++round) {
    std::string bad = good;
    for (auto edits = 1 + random() % 8; edits > 0; --edits)
      bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    if (bad == good) continue;
    ASSERT_NE(damage_of(bad), "");
  }
}

}  // namespace
}  // namespace kiln::cache
