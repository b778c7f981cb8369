#include "kiln/cache/store.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "tests/cache/store_fixture.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::dot_names_below;
using test::in_child;
using test::read_file;
using test::write_file;

TEST(Store, OpensOnlyWhereItCouldBe) {
  EXPECT_EQ(Store::open({}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(in_child([] {
              const std::string gone = TemporaryDirectory().path().string();
              fs::create_directory(gone);
              if (::chdir(gone.c_str()) != 0 || ::rmdir(gone.c_str()) != 0) return 1;
              const auto store = Store::open({.directory = "cache"});
              return !store && store.error().code() == ErrorCode::invalid_argument ? 0 : 2;
            }),
            0);
}

TEST(Store, KeepsToADirectoryGivenRelativeToThePlaceWhereItWasOpened) {
  const TemporaryDirectory directory;
  EXPECT_EQ(in_child([&] {
              if (::chdir(directory.path().c_str()) != 0) return 1;
              Store store = *Store::open({.directory = "cache"});
              if (::chdir("/") != 0 || !publish(store, kKey).ok()) return 2;
              return fs::exists(path_of(directory / "cache", kKey)) ? 0 : 3;
            }),
            0);
}

TEST(Store, GivesBackWhatWasPublished) {
  Fixture f;
  EXPECT_FALSE(f.store.find(digest_of(kKey), kKey).entry);
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_TRUE(finds(f.store, kKey));
  EXPECT_TRUE(finds(f.reopened(), kKey));
  EXPECT_EQ(text_of(f.store.read(digest_of(kKey))->payload()), kPayload + std::string(kKey));
  struct stat status {};
  ASSERT_EQ(::stat(path_of(f.root, kKey).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0444u);
  EXPECT_EQ(f.warnings.size(), 0u);
}

TEST(Store, HoldsEmptyAndLargeParts) {
  Fixture f;
  for (const std::string& key : {std::string(), std::string(100'000, 'k')}) {
    ASSERT_TRUE(f.store.publish(key, {}, {}).ok());
    EXPECT_TRUE(f.store.find(digest_of(key), key).entry);
  }
  const std::string large(3 << 20, 'L');
  ASSERT_TRUE(f.store.publish("large", large, bytes_of(large)).ok());
  const Found found = f.store.find(digest_of("large"), "large");
  ASSERT_TRUE(found.entry) << found.damage;
  EXPECT_EQ(found.entry->facts(), large);
  EXPECT_EQ(text_of(found.entry->payload()), large);
  EXPECT_EQ(f.store.publish("k", std::string((16 << 20) + 1, 'f'), {}).code(),
            ErrorCode::invalid_argument);
}

TEST(Store, ReadingCreatesNothing) {
  Fixture f;
  EXPECT_FALSE(f.store.find(digest_of(kKey), kKey).entry);
  EXPECT_EQ(f.store.read(digest_of(kKey)).error().code(), ErrorCode::io_failed);
  EXPECT_TRUE(f.store.list()->empty());
  EXPECT_TRUE(f.store.verify()->empty());
  EXPECT_TRUE(f.store.records("toolchain").empty());
  EXPECT_FALSE(fs::exists(f.root));
  EXPECT_TRUE(f.warnings.empty());
}

TEST(Store, EqualInputsGiveEqualFiles) {
  Fixture one, two;
  ASSERT_TRUE(publish(one.store, kKey).ok());
  ASSERT_TRUE(publish(two.store, kKey).ok());
  EXPECT_EQ(read_file(path_of(one.root, kKey)), read_file(path_of(two.root, kKey)));
}

TEST(Store, KeepsAGoodEntry) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  ASSERT_TRUE(f.store.publish(kKey, "later", {}).ok());
  EXPECT_TRUE(finds(f.store, kKey));
}

TEST(Store, ListsInOrderAndLeavesOutWhatIsNoEntry) {
  Fixture f;
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(publish(f.store, "k=" + std::to_string(i)).ok());
  write_file(f.root / "v1/e/README", "x");
  write_file(f.root / "v1/e/zz", "x");  // two characters, and no shard
  write_file(path_of(f.root, "k=1").parent_path() / ".tmp-0123456789abcdef", "x");
  write_file(path_of(f.root, "k=1").parent_path() / "notes", "x");
  const auto listed = f.store.list();
  ASSERT_TRUE(listed) << listed.error().message();
  ASSERT_EQ(listed->size(), 50u);
  EXPECT_TRUE(std::is_sorted(listed->begin(), listed->end(),
                             [](auto& a, auto& b) { return a.name < b.name; }));
  for (const EntryInfo& info : *listed) EXPECT_GT(info.file_bytes, kPayload.size());
  EXPECT_EQ(f.store.verify()->size(), 50u);
}

struct Unreadable {
  const char* name;
  void (*make)(const fs::path& root);
  const char* said;
  bool listed = false;  // what is wrong concerns the records alone
  bool needs_openat2 = false;
};

void replace_by_file(const fs::path& directory) {
  fs::remove_all(directory);
  write_file(directory, "x");
}

constexpr Unreadable kUnreadable[] = {
    {"a file for the root", [](auto& r) { replace_by_file(r); }, "not a directory"},
    {"a file for v1", [](auto& r) { replace_by_file(r / "v1"); }, "not a directory"},
    {"a file for the entries", [](auto& r) { replace_by_file(r / "v1/e"); }, "/v1/e: "},
    {"a file for a shard", [](auto& r) { replace_by_file(path_of(r, kKey).parent_path()); },
     "not a directory"},
    {"a link for v1",
     [](auto& r) {
       fs::rename(r / "v1", r / "other");
       fs::create_symlink("other", r / "v1");
     },
     "link", false, true},
    {"a file for the records", [](auto& r) { replace_by_file(r / "v1/r"); }, "/v1/r: ", true},
    {"a file for a kind", [](auto& r) { replace_by_file(r / "v1/r/tools"); },
     "/v1/r/tools: ", true},
};

TEST(Store, AStoreThatCannotBeListedIsNoEmptyStore) {
  for (const Unreadable& unreadable : kUnreadable) {
    if (unreadable.needs_openat2 && !kernel_has_openat2()) continue;
    SCOPED_TRACE(unreadable.name);
    Fixture f;
    ASSERT_TRUE(publish(f.store, kKey).ok());
    ASSERT_TRUE(f.store.add_record("tools", "a").ok());
    unreadable.make(f.root);
    const auto listed = f.store.list();
    EXPECT_EQ(listed.has_value(), unreadable.listed);
    const auto verified = f.store.verify();
    ASSERT_FALSE(verified);
    EXPECT_EQ(verified.error().code(), ErrorCode::io_failed);
    const std::string message = verified.error().message();
    EXPECT_NE(message.find(f.root.string()), std::string::npos) << message;
    EXPECT_NE(message.find(unreadable.said), std::string::npos) << message;
  }
}

TEST(Store, VerifiesRecordsAfterTheEntries) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  for (const char* text : {"a", "b"}) ASSERT_TRUE(f.store.add_record("tools", text).ok());
  write_file(f.root / "v1/r/tools" / digest_of("b").hex(), "damaged");
  write_file(f.root / "v1/r/README", "x");
  const auto verified = f.store.verify();
  ASSERT_TRUE(verified) << verified.error().message();
  ASSERT_EQ(verified->size(), 3u);
  EXPECT_EQ(verified->front().name, digest_of(kKey));
  EXPECT_EQ(verified->front().record_kind, "");
  for (auto info = verified->begin() + 1; info != verified->end(); ++info) {
    EXPECT_EQ(info->record_kind, "tools");
    EXPECT_EQ(info->damage.empty(), info->name == digest_of("a")) << info->damage;
  }
  fs::remove_all(f.root / "v1/r");
  EXPECT_EQ(f.store.verify()->size(), 1u) << "a missing record is no damage";
}

TEST(Store, WarnsOfAnEntryThatIsTooLarge) {
  Fixture f;
  const std::string large((16 << 20) + 1, 'f');
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(f.store.publish("k", large, {}).code(), ErrorCode::invalid_argument);
  ASSERT_EQ(f.warnings.size(), 1u);
  EXPECT_NE(f.warnings[0].find("cannot store"), std::string::npos) << f.warnings[0];
}

TEST(Store, KeepsRecordsInOrder) {
  Fixture f;
  for (const char* text : {"b", "a", "c", "a"}) ASSERT_TRUE(f.store.add_record("tools", text).ok());
  EXPECT_EQ(f.store.records("tools"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(f.store.records("other").empty());
  EXPECT_TRUE(f.store.list()->empty()) << "a record is no entry";
  for (const char* kind : {"", "Tools", "../e", "a/b", "tool1"})
    EXPECT_EQ(f.store.add_record(kind, "x").code(), ErrorCode::invalid_argument) << kind;

  const fs::path record = f.root / "v1/r/tools" / digest_of("b").hex();
  write_file(record, "damaged");
  EXPECT_EQ(f.store.records("tools"), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(f.store.records("tools").size(), 2u);
  EXPECT_EQ(f.warnings.size(), 1u);
  EXPECT_EQ(f.reopened().records("tools").size(), 2u);
  EXPECT_EQ(f.warnings.size(), 1u) << "no later start warns of it";
  EXPECT_FALSE(fs::exists(record));
  ASSERT_TRUE(f.store.add_record("tools", "b").ok());
  EXPECT_EQ(f.store.records("tools").size(), 3u);
}

TEST(Store, SweepsOldTemporariesOfTheShardThatItWrites) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const fs::path shard = path_of(f.root, kKey).parent_path();
  write_file(shard / ".tmp-00000000000000aa", "old");
  write_file(shard / ".tmp-00000000000000bb", "new");
  fs::last_write_time(shard / ".tmp-00000000000000aa",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::last_write_time(shard / ".tmp-00000000000000bb",
                      fs::file_time_type::clock::now() - std::chrono::minutes(50));
  fs::remove(path_of(f.root, kKey));
  Store fresh = f.reopened();
  ASSERT_TRUE(publish(fresh, kKey).ok());
  EXPECT_EQ(dot_names_below(f.root), std::vector<std::string>{".tmp-00000000000000bb"});
}

TEST(Store, IsDurableWhenAsked) {
  Fixture f;
  Store store = f.reopened(/*durable=*/true);
  ASSERT_TRUE(publish(store, kKey).ok());
  ASSERT_TRUE(publish(store, kKey).ok());
  EXPECT_TRUE(finds(store, kKey));
}

}  // namespace
}  // namespace kiln::cache
