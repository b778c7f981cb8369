// Bundles: what they hold, what they refuse, and that equal content gives equal bytes.
#include "kiln/cache/bundle.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kiln/cache/signing.hpp"
#include "tests/cache/bundle_fixture.hpp"

namespace kiln::cache {
namespace {

using test::read_file;
using test::write_file;

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

}  // namespace
}  // namespace kiln::cache
