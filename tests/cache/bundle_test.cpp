// Bundles: what they hold, what they refuse, and that equal content gives equal bytes.
#include "kiln/cache/bundle.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/bundle_format.hpp"
#include "kiln/cache/signing.hpp"
#include "store_fixture.hpp"

namespace kiln::cache {
namespace {

using test::read_file;
using test::write_file;

SecretKey secret_key_of(unsigned char first) {
  std::array<std::byte, 32> seed{};
  seed[0] = std::byte{first};
  return *SecretKey::from_seed(seed);
}

template <class Integer>
std::string with(std::string bytes, std::size_t offset, Integer value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

class Bundles : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef KILN_EMULATED
    GTEST_SKIP() << "no libsodium for the emulated processor";
#endif
  }

  fs::path file() const {
    return fixture_.directory / "kernels.kiln";
  }
  Signers accepted() const {
    return {.keys = {secret_key_of(1).public_key()}};
  }

  /// Writes `keys` to file(), signed unless `signer` is null, and gives its bytes.
  std::string pack(const std::vector<std::string>& keys, const SecretKey* signer) {
    std::vector<BundleSource> sources;
    for (const auto& key : keys) {
      EXPECT_TRUE(fixture_.store.publish(key, "{}", bytes_of("payload of " + key)));
      sources.push_back({digest_of(key), "sm_90a", "nvrtc 13.0"});
    }
    const auto status = write_bundle(fixture_.store, std::move(sources), signer, file());
    EXPECT_TRUE(status) << status.error().message();
    return read_file(file());
  }
  std::string pack(const std::vector<std::string>& keys) {
    const auto signer = secret_key_of(1);
    return pack(keys, &signer);
  }

  /// Why a file of `bytes` cannot be used: at its opening, or at the reading of its entries.
  std::string trouble_with(const std::string& bytes, const Signers& signers) const {
    const auto path = fixture_.directory / "changed.kiln";
    write_file(path, bytes);
    const auto bundle = Bundle::open(path, signers);
    if (!bundle) {
      EXPECT_EQ(bundle.error().code(), ErrorCode::io_failed);
      EXPECT_NE(bundle.error().message().find(path.string()), std::string::npos);
      return bundle.error().message();
    }
    for (const auto& entry : bundle->entries()) {
      const auto found = bundle->find(entry.name);
      if (!found) return found.error().message();
      if (!found->entry) return found->damage;
    }
    return {};
  }
  std::string trouble_with(const std::string& bytes) const {
    return trouble_with(bytes, accepted());
  }

  Fixture fixture_;
};

TEST_F(Bundles, GiveBackEveryEntryAndWhatTheIndexSaysOfIt) {
  pack({"k=1", "k=2", "k=3"});
  const auto bundle = Bundle::open(file(), accepted());
  ASSERT_TRUE(bundle) << bundle.error().message();
  EXPECT_EQ(bundle->signer(), secret_key_of(1).public_key());
  EXPECT_EQ(bundle->file(), file());
  EXPECT_EQ(bundle->file_bytes(), fs::file_size(file()));
  ASSERT_EQ(bundle->entries().size(), 3u);
  EXPECT_TRUE(std::is_sorted(bundle->entries().begin(), bundle->entries().end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const std::string key : {"k=1", "k=2", "k=3"}) {
    const auto found = bundle->find(digest_of(key), key);
    ASSERT_TRUE(found);
    ASSERT_TRUE(found->entry) << found->damage;
    EXPECT_EQ(found->entry->key_text(), key);
    EXPECT_EQ(found->entry->facts(), "{}");
    EXPECT_EQ(text_of(found->entry->payload()), "payload of " + key);
  }
  for (const auto& entry : bundle->entries()) {
    EXPECT_EQ(entry.architecture, "sm_90a");
    EXPECT_EQ(entry.toolchain, "nvrtc 13.0");
    EXPECT_EQ(entry.payload_bytes, 14u);
    // The digest is that of the file that the store keeps.
    const auto hex = entry.name.hex();
    const auto stored = read_file(fixture_.root / "v1/e" / hex.substr(0, 2) / hex.substr(2));
    EXPECT_EQ(entry.entry_bytes, stored.size());
    EXPECT_EQ(entry.entry_sha256, *sha256_of(bytes_of(stored)));
  }
  const auto absent = bundle->find(digest_of("k=4"), "k=4");
  ASSERT_TRUE(absent);
  EXPECT_FALSE(absent->entry);
  EXPECT_EQ(absent->damage, "");
  const auto other = bundle->find(digest_of("k=1"), "k=2");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->damage, "key text differs");
}

TEST_F(Bundles, HaveGoldenBytes) {
  // The worked example of cache/BUNDLE.md.
  ASSERT_TRUE(fixture_.store.publish("k=1", "{}",
                                     bytes_of("\x7f"
                                              "ELF")));
  const auto signer = secret_key_of(1);
  ASSERT_TRUE(
      write_bundle(fixture_.store, {{digest_of("k=1"), "sm_90a", "nvrtc"}}, &signer, file()));
  std::string hex;
  const auto bytes = read_file(file());
  for (std::size_t at = 0; at < bytes.size(); at += 32) {
    Sha256 part;
    const auto size = std::min<std::size_t>(32, bytes.size() - at);
    std::memcpy(part.bytes.data(), bytes.data() + at, size);
    hex += part.hex().substr(0, 2 * size) + '\n';
  }
  EXPECT_EQ(hex,
            "4b494c420d0a1a0a010000000100000001000000000000007300000000000000\n"
            "5900000000000000cecc1507dc1ddd7295951c290888f095adb9044d1b73d696\n"
            "e6df065d683bd4fc1cb370f4576cbeaf95776f616d9236629b19467654aed1a2\n"
            "61602ee60a4b124c5705be464c4fe4f2c71f651fe15fac97673aa2bd40846fa0\n"
            "ad7a98c5cb7eda343c4c473e8c2efa5240c456da0ed6c3e75900000000000000\n"
            "04000000000000000600000005000000736d5f3930616e767274630b54e26b72\n"
            "c9218006141c494a890ba43aab54a009543ee195e53f35eb8ab3ab817688b90a\n"
            "41fa711373c16a3b100839ebd8590ab0af6e08c77a157fe3c73e0c4b494c4e0d\n"
            "0a1a0a0100000050000000000000000000000003000000000000000200000000\n"
            "0000000400000000000000bb62c8a2372c5741471697d84c9d716840764e22eb\n"
            "748fa88c82fe354c8c0ea66b3d317b7d7f454c46\n");
}

TEST_F(Bundles, OfTheSameContentHaveTheSameBytesWhereverAndInWhateverOrderTheyAreMade) {
  const auto bytes = pack({"k=1", "k=2", "k=3"});
  Fixture other;
  const auto signer = secret_key_of(1);
  std::vector<BundleSource> sources;
  for (const std::string key : {"k=3", "k=1", "k=2", "k=1"}) {
    ASSERT_TRUE(other.store.publish(key, "{}", bytes_of("payload of " + key)));
    sources.push_back({digest_of(key), "sm_90a", "nvrtc 13.0"});
  }
  const auto path = other.directory / "other.kiln";
  ASSERT_TRUE(write_bundle(other.store, sources, &signer, path));
  EXPECT_EQ(read_file(path), bytes);
  // Over a file that is there, and with nothing left beside it.
  ASSERT_TRUE(write_bundle(other.store, sources, &signer, path));
  EXPECT_EQ(read_file(path), bytes);
  std::set<std::string> names;
  for (const auto& each : fs::directory_iterator(other.directory.path()))
    names.insert(each.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"cache", "other.kiln"}));
}

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

TEST_F(Bundles, OfDamagedOrAbsentEntriesAreNotMade) {
  ASSERT_TRUE(publish(fixture_.store, "k=1"));
  const auto signer = secret_key_of(1);
  bool went = false;
  const auto refused = [&](const Digest& name) {
    const auto status = write_bundle(fixture_.store, {{name, "", ""}}, &signer, file(), &went);
    return status ? std::string("written") : status.error().message();
  };
  EXPECT_NE(refused(digest_of("k=2")).find("no such entry"), std::string::npos);
  EXPECT_TRUE(went);
  write_file(path_of(fixture_.root, "k=1"), "damaged");
  EXPECT_NE(refused(digest_of("k=1")).find("is damaged"), std::string::npos);
  EXPECT_FALSE(went);
  EXPECT_FALSE(fs::exists(file()));
  const auto nowhere = write_bundle(fixture_.store, {}, &signer, fixture_.directory / "no/where");
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message().find("No such file"), std::string::npos);
}

TEST_F(Bundles, MayBeEmpty) {
  pack({});
  const auto bundle = Bundle::open(file(), accepted());
  ASSERT_TRUE(bundle) << bundle.error().message();
  EXPECT_EQ(bundle->entries().size(), 0u);
  EXPECT_FALSE(bundle->find(digest_of("k=1"))->entry);
}

TEST_F(Bundles, ArePlainFilesAndAreNotWaitedFor) {
  EXPECT_NE(Bundle::open(file(), accepted()).status().error().message().find("No such file"),
            std::string::npos);
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  for (const auto& path : {file(), fixture_.directory.path()})
    EXPECT_NE(Bundle::open(path, accepted()).status().error().message().find("not a file"),
              std::string::npos);
}

TEST_F(Bundles, TakeThePlaceOfAFileAndOfNothingElse) {
  ASSERT_TRUE(fixture_.store.publish("k=1", "{}", bytes_of("payload")).ok());
  const auto signer = secret_key_of(1);
  const auto write = [&] {
    return write_bundle(fixture_.store, {{.name = digest_of("k=1")}}, &signer, file());
  };
  const auto type = [&] { return fs::symlink_status(file()).type(); };
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_NE(write().error().message().find("not a regular file"), std::string::npos);
  EXPECT_EQ(type(), fs::file_type::fifo);
  fs::remove(file());
  fs::create_symlink(fixture_.directory / "other", file());
  EXPECT_NE(write().error().message().find("not a regular file"), std::string::npos);
  EXPECT_EQ(type(), fs::file_type::symlink);
  fs::remove(file());
  test::write_file(file(), "old");
  EXPECT_TRUE(write().ok());
  EXPECT_TRUE(Bundle::open(file(), accepted()));
  EXPECT_TRUE(test::dot_names_below(fixture_.directory.path()).empty());
}

TEST_F(Bundles, AreReadByManyThreadsAtOnce) {
  const std::vector<std::string> keys = {"k=1", "k=2", "k=3", "k=4"};
  pack(keys);
  const auto bundle = Bundle::open(file(), accepted());
  ASSERT_TRUE(bundle);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        for (const auto& key : keys) EXPECT_TRUE(bundle->find(digest_of(key), key)->entry);
    });
  for (auto& thread : threads) thread.join();
}

// As it is, below a directory that is empty.
TEST_F(Bundles, ServeAsReadOnlyTiers) {
  pack({"k=1", "k=2"});
  const auto root = fixture_.directory / "other";
  const auto open = [&](std::vector<PublicKey> signers) {
    return *Store::open({.directory = root,
                         .log = fixture_.sink(),
                         .read_only = {file()},
                         .trust = {.signers = std::move(signers)}});
  };
  {
    const auto store = open({secret_key_of(2).public_key(), secret_key_of(1).public_key()});
    for (const std::string key : {"k=1", "k=2"}) {
      const auto found = store.find(digest_of(key), key);
      ASSERT_TRUE(found.entry) << found.damage;
      EXPECT_TRUE(found.in_lower_tier);
      EXPECT_EQ(text_of(found.entry->payload()), "payload of " + key);
    }
    EXPECT_FALSE(store.find(digest_of("k=3"), "k=3").entry);
    EXPECT_EQ(store.records("toolchain"), std::vector<std::string>{"nvrtc 13.0"});
    EXPECT_TRUE(store.records("hint").empty());
    EXPECT_EQ(store.names()->size(), 2u);
    ASSERT_EQ(store.counters().tiers.size(), 2u);
    EXPECT_EQ(store.counters().tiers[1].hits, 2u);
    EXPECT_EQ(store.counters().tiers[1].path, file().string());
    EXPECT_EQ(store.counters().misses, 1u);
    EXPECT_TRUE(fixture_.warnings.empty());
  }
  EXPECT_FALSE(fs::exists(root));

  // Of a stranger, unsigned, or damaged: misses that are counted, and one warning.
  const auto refused = [&](const std::vector<PublicKey>& signers) {
    fixture_.warnings.clear();
    const auto store = open(signers);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(store.find(digest_of("k=1"), "k=1").entry);
    EXPECT_EQ(store.counters().misses, 3u);
    EXPECT_EQ(store.counters().tiers[1].refused, 3u);
    EXPECT_TRUE(store.records("toolchain").empty());
    return fixture_.warnings.size() == 1 ? fixture_.warnings.front() : std::string("no warning");
  };
  EXPECT_NE(refused({secret_key_of(2).public_key()}).find(secret_key_of(1).public_key().text()),
            std::string::npos);
  EXPECT_NE(refused({}).find("KILN_CACHE_SIGNERS"), std::string::npos);
  pack({"k=1"}, nullptr);
  EXPECT_NE(refused({secret_key_of(1).public_key()}).find("unsigned"), std::string::npos);
  auto bytes = pack({"k=1"});
  bytes[100] ^= 1;
  write_file(file(), bytes);
  EXPECT_NE(refused({secret_key_of(1).public_key()}).find("changed after"), std::string::npos);

  // An entry alone that is damaged is that and no more.
  fixture_.warnings.clear();
  bytes = pack({"k=1", "k=2"});
  bytes.back() ^= 1;
  write_file(file(), bytes);
  const auto store = open({secret_key_of(1).public_key()});
  const bool first = store.find(digest_of("k=1"), "k=1").entry.has_value();
  const bool second = store.find(digest_of("k=2"), "k=2").entry.has_value();
  EXPECT_NE(first, second);
  EXPECT_EQ(store.counters().tiers[1].damaged, 1u);
}

TEST_F(Bundles, SecretKeysAreForTheirOwnersEyesAndAreNeverOverwritten) {
  const auto path = fixture_.directory / "kiln.key";
  const mode_t before = ::umask(0);
  const auto key = SecretKey::generate();
  ASSERT_TRUE(key);
  EXPECT_TRUE(key->write(path));
  EXPECT_TRUE(key->public_key().write(fixture_.directory / "kiln.key.pub"));
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);

  const auto again = SecretKey::read(path);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->public_key(), key->public_key());
  EXPECT_EQ(*PublicKey::read(fixture_.directory / "kiln.key.pub"), key->public_key());
  EXPECT_NE(SecretKey::generate()->public_key(), key->public_key());

  const auto bytes = read_file(path);
  const auto other = SecretKey::generate();
  EXPECT_NE(other->write(path).error().message().find("never overwritten"), std::string::npos);
  EXPECT_EQ(read_file(path), bytes);
  fs::create_symlink(fixture_.directory / "elsewhere", fixture_.directory / "link");
  EXPECT_FALSE(other->write(fixture_.directory / "link"));
  EXPECT_FALSE(fs::exists(fixture_.directory / "elsewhere"));

  for (const auto mode : {fs::perms::group_read, fs::perms::others_read, fs::perms::group_write}) {
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write | mode);
    const auto open = SecretKey::read(path);
    ASSERT_FALSE(open);
    EXPECT_NE(open.error().message().find("chmod 600"), std::string::npos);
  }
}

TEST_F(Bundles, KeyFilesThatHoldSomethingElseAreRefusedAndNotShown) {
  const auto path = fixture_.directory / "key";
  const auto secret = secret_key_of(7);
  ASSERT_TRUE(secret.write(path));
  const auto text = read_file(path);
  const auto as_public = PublicKey::read(path);
  ASSERT_FALSE(as_public);
  EXPECT_EQ(as_public.error().message().find(text.substr(16, 16)), std::string::npos);
  EXPECT_FALSE(PublicKey::from_text(text));
  EXPECT_EQ(PublicKey::from_text(text).error().message().find(text.substr(16, 16)),
            std::string::npos);
  for (const std::string& wrong : {std::string(), text + "x", text.substr(0, text.size() - 2),
                                   std::string(300, 'a'), secret.public_key().text()}) {
    write_file(path, wrong);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(SecretKey::read(path).status().code(), ErrorCode::invalid_argument) << wrong;
  }
  auto upper = secret.public_key().text();
  upper.back() = 'G';
  EXPECT_FALSE(PublicKey::from_text(upper));
  EXPECT_EQ(*PublicKey::from_text(secret.public_key().text()), secret.public_key());
}

}  // namespace
}  // namespace kiln::cache
