// Bundles that were changed, cut short, put together or signed by a stranger are refused.
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/bundle_format.hpp"
#include "cache/file.hpp"
#include "tests/cache/bundle_fixture.hpp"

namespace kiln::cache {
namespace {

using test::write_file;

TEST_F(Bundles, RefuseEveryFlippedBitSignedOrNot) {
  const auto signer = secret_key_of(1);
  for (const SecretKey* key : {&signer, static_cast<const SecretKey*>(nullptr)}) {
    const auto good = pack({"k=1", "k=2"}, key);
    const Signers signers = key != nullptr ? accepted() : Signers{.anyone = true};
    ASSERT_EQ(trouble_with(good, signers), "");
    const auto path = fixture_.directory / "changed.kiln";
    write_file(path, good);
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      const auto at = static_cast<off_t>(bit / 8);
      const char flipped = static_cast<char>(good[bit / 8] ^ (1 << bit % 8));
      ASSERT_EQ(::pwrite(fd.get(), &flipped, 1, at), 1);
      bool whole = false;
      if (const auto bundle = Bundle::open(path, signers)) {
        whole = true;
        for (const auto& entry : bundle->entries()) {
          const auto found = bundle->find(entry.name);
          whole = whole && found && found->entry;
        }
      }
      ASSERT_FALSE(whole) << "bit " << bit;
      ASSERT_EQ(::pwrite(fd.get(), &good[bit / 8], 1, at), 1);
    }
  }
}

TEST_F(Bundles, RefuseEveryTruncationAndWhatIsAppended) {
  const auto good = pack({"k=1", "k=2"});
  for (std::size_t size = 0; size < good.size(); ++size)
    ASSERT_NE(trouble_with(good.substr(0, size)), "") << size;
  EXPECT_NE(trouble_with(good + '\0').find("1 bytes of junk"), std::string::npos);
}

TEST_F(Bundles, AreReadThoughTheyAreCutShortAfterTheyWereOpened) {
  const auto good = pack({"k=1", "k=2"});
  const auto bundle = Bundle::open(file(), accepted());
  ASSERT_TRUE(bundle);
  fs::resize_file(file(), good.size() - 1);
  const auto& [first, second] = std::pair(bundle->entries()[0], bundle->entries()[1]);
  EXPECT_TRUE(bundle->find(first.name)->entry);
  EXPECT_EQ(bundle->find(second.name)->damage, "the bundle was cut short after it was opened");
}

TEST_F(Bundles, RefuseEntriesThatChangedPlaces) {
  // Two of one size, so that only their digests tell.
  const auto good = pack({"k=1", "k=2"});
  const auto size =
      static_cast<std::size_t>(Bundle::open(file(), accepted())->entries()[0].entry_bytes);
  const auto start = good.size() - 2 * size;
  const auto swapped = good.substr(0, start) + good.substr(start + size) + good.substr(start, size);
  EXPECT_NE(trouble_with(swapped).find("SHA-256 of the entry differs"), std::string::npos);
  // The index of one bundle before the entries of another.
  const auto other = pack({"k=3", "k=4"});
  ASSERT_EQ(other.size(), good.size());
  EXPECT_NE(trouble_with(good.substr(0, start) + other.substr(start)).find("SHA-256"),
            std::string::npos);
}

// Whole and sealed by its maker, and yet not true.
TEST_F(Bundles, RefuseAnIndexThatSaysOtherwiseThanItsEntry) {
  const auto good = pack({"k=1"}, nullptr);
  const auto bundle = Bundle::open(file(), {.anyone = true});
  ASSERT_TRUE(bundle);
  const auto start = good.size() - static_cast<std::size_t>(bundle->entries()[0].entry_bytes);
  const auto trouble = [&](auto&& change) {
    auto entries = bundle->entries();
    change(entries[0]);
    const auto message = encode_index(std::nullopt, entries);
    const auto digest = *sha256_of(message);
    return trouble_with(
        text_of(message) + text_of(digest.bytes) + std::string(32, '\0') + good.substr(start),
        {.anyone = true});
  };
  EXPECT_EQ(trouble([](BundleEntry&) {}), "");
  EXPECT_NE(trouble([](BundleEntry& entry) { entry.name.low ^= 1; }).find("another key"),
            std::string::npos);
  EXPECT_NE(trouble([](BundleEntry& entry) { entry.key_sha256 = {}; }).find("of the key text"),
            std::string::npos);
  EXPECT_NE(trouble([](BundleEntry& entry) { --entry.payload_bytes; }).find("size of the payload"),
            std::string::npos);
}

TEST_F(Bundles, AreTakenFromAcceptedSignersOnly) {
  const auto bytes = pack({"k=1"});
  const auto stranger = secret_key_of(2).public_key();
  const auto signed_by = secret_key_of(1).public_key().text();
  const auto refusal = trouble_with(bytes, {.keys = {stranger}});
  EXPECT_NE(refusal.find(signed_by), std::string::npos) << refusal;
  EXPECT_NE(refusal.find(stranger.text()), std::string::npos) << refusal;
  EXPECT_NE(trouble_with(bytes, {}).find("no signer is accepted"), std::string::npos);
  EXPECT_EQ(trouble_with(bytes, {.keys = {stranger, secret_key_of(1).public_key()}}), "");
  EXPECT_EQ(trouble_with(bytes, {.anyone = true}), "");

  // A stranger's bundle that says it is ours.
  const auto other = secret_key_of(2);
  auto forged = pack({"k=1"}, &other);
  EXPECT_NE(trouble_with(forged).find(stranger.text()), std::string::npos);
  forged.replace(40, 32, bytes, 40, 32);
  EXPECT_NE(trouble_with(forged).find("changed after it was signed"), std::string::npos);
  EXPECT_NE(trouble_with(forged, {.anyone = true}), "");

  const auto loose = pack({"k=1"}, nullptr);
  const auto unsigned_refusal = trouble_with(loose);
  EXPECT_NE(unsigned_refusal.find("it is unsigned"), std::string::npos) << unsigned_refusal;
  EXPECT_NE(unsigned_refusal.find(signed_by), std::string::npos) << unsigned_refusal;
  EXPECT_EQ(trouble_with(loose, {.anyone = true}), "");
  EXPECT_FALSE(Bundle::open(fixture_.directory / "changed.kiln", {.anyone = true})->signer());
}

TEST_F(Bundles, SetNothingAsideForHugeSizesThatAreNotThere) {
  const auto good = pack({"k=1"});
  constexpr std::uint64_t kHuge[] = {std::uint64_t{1} << 63, ~std::uint64_t{0},
                                     std::uint64_t{1} << 40, kMaxIndexBytes};
  for (const std::size_t at : {16u, 24u, 32u})  // count, index and entries
    for (const std::uint64_t size : kHuge) {
      BundleHead head;
      const auto bytes = with(good, at, size);
      EXPECT_NE(decode_head(bytes_of(bytes), bytes.size(), head), "") << at << ' ' << size;
      EXPECT_NE(trouble_with(bytes), "");
    }
  // A file that is as long as it says, with holes for bytes, and an index over the limit.
  const auto path = fixture_.directory / "sparse.kiln";
  write_file(path, with(good.substr(0, kBundleHeadBytes), 24, kMaxIndexBytes + 1));
  fs::resize_file(path, std::uint64_t{1} << 32);
  EXPECT_NE(Bundle::open(path, accepted()).status().error().message().find("over the limit"),
            std::string::npos);
}

TEST(BundleIndex, IsRefusedWhereItsSizesOrItsOrderAreWrong) {
  const std::vector<BundleEntry> entries = {
      {.name = {.high = 1, .low = 2}, .entry_bytes = 100, .payload_bytes = 20, .architecture = "a"},
      {.name = {.high = 1, .low = 3}, .entry_bytes = 80, .toolchain = "t"}};
  const auto encoded = encode_index(std::nullopt, entries);
  const std::string good = text_of(encoded);
  const auto trouble = [&](const std::string& bytes) {
    BundleHead head;
    std::vector<BundleEntry> decoded;
    const auto size = bytes.size() + kBundleSealBytes + 180;
    if (auto why = decode_head(bytes_of(bytes), size, head); !why.empty()) return why;
    return decode_index(head, bytes_of(bytes).subspan(kBundleHeadBytes), decoded);
  };
  ASSERT_EQ(trouble(good), "");
  const std::size_t first = kBundleHeadBytes;
  const std::size_t second = first + kRecordBytes + 1;
  const struct {
    std::string bytes;
    std::string_view said;
  } faults[] = {
      {with(good, second, std::uint64_t{2}), "out of order"},  // the same name twice
      {with(good, second, std::uint64_t{1}), "out of order"},
      {with(good, first + 80, std::uint64_t{79}), "declares an entry of 79 bytes"},
      {with(good, first + 80, ~std::uint64_t{0}), "declares an entry"},
      {with(good, first + 80, std::uint64_t{101}), "speaks of 181 bytes"},
      {with(good, first + 88, std::uint64_t{21}), "with 21 of payload"},
      {with(good, first + 96, std::uint32_t{4097}), "over the limit"},
      {with(good, second + 100, std::uint32_t{2}), "cut short"},
      {with(good, second + 100, ~std::uint32_t{0}), "over the limit"},
      {with(good, second + 100, std::uint32_t{0}), "cut short"},
      {with(good, 16, std::uint64_t{1}), "beyond the 1"},
      {with(good, 16, std::uint64_t{3}), "has room for 2"},
      {with(good, 8, std::uint32_t{2}), "schema 2"},
      {with(good, 12, std::uint32_t{2}), "seal of kind 2"},
      {with(good, 40, std::uint32_t{1}), "names a signer"},
      {with(good, 0, 'k'), "no Kiln bundle"},
  };
  for (const auto& fault : faults)
    EXPECT_NE(trouble(fault.bytes).find(fault.said), std::string::npos)
        << fault.said << ": " << trouble(fault.bytes);
}

}  // namespace
}  // namespace kiln::cache
