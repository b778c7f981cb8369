#include "kiln/cache/store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
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

struct Damage {
  const char* name;
  void (*apply)(const fs::path& entry, const std::string& good, const std::string& other);
};

std::string flipped(std::string bytes, std::size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  return bytes;
}

constexpr Damage kDamages[] = {
    {"empty", [](auto& p, auto&, auto&) { write_file(p, ""); }},
    {"one byte", [](auto& p, auto& good, auto&) { write_file(p, good.substr(0, 1)); }},
    {"half", [](auto& p, auto& good, auto&) { write_file(p, good.substr(0, good.size() / 2)); }},
    {"short by one",
     [](auto& p, auto& good, auto&) { write_file(p, good.substr(0, good.size() - 1)); }},
    {"flip in front", [](auto& p, auto& good, auto&) { write_file(p, flipped(good, 0)); }},
    {"flip in the middle",
     [](auto& p, auto& good, auto&) { write_file(p, flipped(good, good.size() / 2)); }},
    {"flip at the end",
     [](auto& p, auto& good, auto&) { write_file(p, flipped(good, good.size() - 1)); }},
    {"junk appended", [](auto& p, auto& good, auto&) { write_file(p, good + "junk"); }},
    {"another key's entry", [](auto& p, auto&, auto& other) { write_file(p, other); }},
    {"zeros of the right size",
     [](auto& p, auto& good, auto&) { write_file(p, std::string(good.size(), '\0')); }},
    {"older schema",
     [](auto& p, auto& good, auto&) {
       auto b = good;
       b[8] = 0;
       write_file(p, b);
     }},
    {"newer schema",
     [](auto& p, auto& good, auto&) {
       auto b = good;
       b[8] = 2;
       write_file(p, b);
     }},
    {"sparse terabyte",
     [](auto& p, auto&, auto&) {
       write_file(p, "");
       fs::resize_file(p, std::uintmax_t{1} << 40);
     }},
    {"sparse tail",
     [](auto& p, auto& good, auto&) {
       write_file(p, good);
       fs::resize_file(p, 3u << 20);
     }},
    {"empty directory",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_directory(p);
     }},
    {"full directory",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_directories(p / "a/b");
     }},
    {"pipe",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       ::mkfifo(p.c_str(), 0666);
     }},
    {"dangling link",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_symlink("nowhere", p);
     }},
    {"link to a good file",
     [](auto& p, auto& good, auto&) {
       write_file(p.parent_path() / "x", good);
       fs::remove(p);
       fs::create_symlink("x", p);
     }},
    {"link to itself",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_symlink(p, p);
     }},
    {"device",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       ::mknod(p.c_str(), S_IFCHR | 0666, makedev(1, 5));
     }},
};

TEST(Store, TreatsADamagedEntryAsAbsentWarnsOnceAndReplacesIt) {
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    Fixture f;
    ASSERT_TRUE(publish(f.store, kKey).ok());
    ASSERT_TRUE(publish(f.store, "k=2").ok());
    const fs::path path = path_of(f.root, kKey);
    damage.apply(path, read_file(path), read_file(path_of(f.root, "k=2")));
    for (int i = 0; i < 3; ++i) {
      const Found found = f.store.find(digest_of(kKey), kKey);
      EXPECT_FALSE(found.entry);
      EXPECT_NE(found.damage, "");
    }
    EXPECT_EQ(f.store.read(digest_of(kKey)).error().code(), ErrorCode::io_failed);
    const auto listed = f.store.verify();
    ASSERT_TRUE(listed) << listed.error().message();
    EXPECT_EQ(std::count_if(listed->begin(), listed->end(),
                            [](const EntryInfo& info) { return !info.damage.empty(); }),
              1);

    EXPECT_TRUE(publish(f.store, kKey).ok());
    EXPECT_TRUE(finds(f.store, kKey));
    EXPECT_TRUE(finds(f.store, "k=2"));
    const auto repaired = f.store.verify();
    ASSERT_TRUE(repaired) << repaired.error().message();
    for (const EntryInfo& info : *repaired) EXPECT_EQ(info.damage, "");
    ASSERT_EQ(f.warnings.size(), 1u);
    EXPECT_NE(f.warnings[0].find(path.string()), std::string::npos) << f.warnings[0];
  }
}

TEST(Store, NamesWhatStandsInThePlaceOfAnEntry) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const fs::path path = path_of(f.root, kKey);
  const auto damage = [&] { return f.store.find(digest_of(kKey), kKey).damage; };
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(damage(), "is a directory");
  fs::remove(path);
  ::mkfifo(path.c_str(), 0666);
  EXPECT_EQ(damage(), "is a pipe");
  fs::remove(path);
  fs::create_symlink("nowhere", path);
  EXPECT_EQ(damage(), "is a symbolic link");
  fs::remove(path);
  if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 5)) != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(damage(), "is a device");
}

TEST(Store, NoticesSwappedEntries) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, "k=1").ok());
  ASSERT_TRUE(publish(f.store, "k=2").ok());
  fs::rename(path_of(f.root, "k=1"), f.directory / "kept");
  fs::rename(path_of(f.root, "k=2"), path_of(f.root, "k=1"));
  fs::rename(f.directory / "kept", path_of(f.root, "k=2"));
  for (const char* key : {"k=1", "k=2"}) {
    EXPECT_EQ(f.store.find(digest_of(key), key).damage, "holds the entry of another key");
    EXPECT_TRUE(publish(f.store, key).ok());
    EXPECT_TRUE(finds(f.store, key));
  }
  EXPECT_EQ(f.warnings.size(), 2u);
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

TEST(Store, TheWarningOfADanglingLinkNamesTheLinkWhateverShowsItFirst) {
  for (const bool lock_first : {true, false}) {
    Fixture f;
    fs::create_symlink(f.directory / "no/where", f.root);
    if (lock_first) {
      EXPECT_EQ(f.store.try_lock(digest_of(kKey)).outcome, LockOutcome::unavailable);
    }
    EXPECT_EQ(publish(f.store, kKey).code(), ErrorCode::io_failed);
    ASSERT_EQ(f.warnings.size(), 1u);
    EXPECT_NE(f.warnings[0].find("is a link to a directory that does not exist"), std::string::npos)
        << f.warnings[0];
  }
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

TEST(Store, KeepsWorkingWhenItsDirectoryIsReplaced) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  fs::remove_all(f.root);
  EXPECT_FALSE(f.store.find(digest_of(kKey), kKey).entry);
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_TRUE(finds(f.store, kKey));
  fs::rename(f.root, f.directory / "old");
  EXPECT_FALSE(f.store.find(digest_of(kKey), kKey).entry);
  {
    Store other = f.reopened();
    ASSERT_TRUE(publish(other, "k=2").ok());
  }
  EXPECT_TRUE(finds(f.store, "k=2"));
  EXPECT_TRUE(f.warnings.empty());
}

TEST(Store, FollowsALinkAtItsRootAndNoneBelow) {
  if (!kernel_has_openat2()) GTEST_SKIP() << "this kernel has no openat2";
  Fixture f;
  fs::create_directory(f.directory / "real");
  fs::create_symlink("real", f.root);
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_TRUE(finds(f.store, kKey));
  fs::rename(f.directory / "real/v1", f.directory / "real/other");
  fs::create_symlink("other", f.directory / "real/v1");
  EXPECT_FALSE(f.store.find(digest_of(kKey), kKey).entry);
  EXPECT_EQ(publish(f.store, "k=2").code(), ErrorCode::io_failed);
}

struct BadRoot {
  const char* name;
  fs::path (*make)(const fs::path& directory);
};

constexpr BadRoot kBadRoots[] = {
    {"a file",
     [](auto& d) {
       write_file(d / "f", "x");
       return fs::path(d / "f");
     }},
    {"below a file",
     [](auto& d) {
       write_file(d / "f", "x");
       return fs::path(d / "f/cache");
     }},
    {"a dangling link",
     [](auto& d) {
       fs::create_symlink(d / "no/where", d / "l");
       return fs::path(d / "l");
     }},
    {"a link loop",
     [](auto& d) {
       fs::create_symlink(d / "l", d / "l");
       return fs::path(d / "l");
     }},
    {"a name of 256 bytes", [](auto& d) { return fs::path(d / std::string(256, 'n')); }},
    {"a device", [](auto&) { return fs::path("/dev/null"); }},
    {"a file in the way of v1",
     [](auto& d) {
       write_file(d / "v1", "x");
       return fs::path(d);
     }},
    {"in /proc", [](auto&) { return fs::path("/proc/kiln"); }},
};

TEST(Store, SaysWhyADirectoryCannotBeUsed) {
  for (const BadRoot& bad : kBadRoots) {
    SCOPED_TRACE(bad.name);
    const TemporaryDirectory directory;
    const fs::path root = bad.make(directory.path());
    int warnings = 0;
    Store store =
        *Store::open({.directory = root, .log = [&](LogLevel, std::string_view) { ++warnings; }});
    for (int i = 0; i < 2; ++i) {
      const Found found = store.find(digest_of(kKey), kKey);
      EXPECT_FALSE(found.entry);
      EXPECT_EQ(found.damage, "");
      EXPECT_EQ(store.try_lock(digest_of(kKey)).outcome, LockOutcome::unavailable);
      expect_useful(publish(store, kKey), root);
    }
    EXPECT_LE(warnings, 1);
  }
}

TEST(Store, WorksUnderALongName) {
  Fixture f;
  f.root = f.directory / std::string(255, 'n') / std::string(255, 'm');
  Store store = f.reopened();
  EXPECT_TRUE(publish(store, kKey).ok());
  EXPECT_TRUE(finds(store, kKey));
}

TEST(Store, ServesAnotherUserFromADirectoryItMayOnlyRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_EQ(as_nobody([&] {
              Store store = f.reopened();
              if (!finds(store, kKey)) return 1;
              if (!publish(store, kKey).ok()) return 2;  // a good entry is there
              if (!f.warnings.empty()) return 3;
              if (store.try_lock(digest_of("k=2")).outcome != LockOutcome::unavailable) return 4;
              if (publish(store, "k=2").code() != ErrorCode::io_failed) return 5;
              if (store.find(digest_of("k=2"), "k=2").entry) return 6;
              return f.warnings.size() == 1 ? 0 : 7;
            }),
            0);
}

TEST(Store, IsQuietlyUselessInADirectoryItMayNotEnter) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  ::chmod(f.root.c_str(), 0700);
  EXPECT_EQ(as_nobody([&] {
              Store store = f.reopened();
              for (const char* key : {"k=1", "k=2", "k=3"}) {
                const Found found = store.find(digest_of(key), key);
                if (found.entry || !found.damage.empty()) return 1;
              }
              if (publish(store, kKey).code() != ErrorCode::io_failed) return 2;
              if (store.list() || store.verify()) return 4;
              return f.warnings.size() == 1 ? 0 : 3;
            }),
            0);
  // One entry that cannot be opened is its own trouble, and can be replaced by who owns the shard.
  ::chmod(f.root.c_str(), 0755);
  ::chmod(path_of(f.root, kKey).c_str(), 0);
  EXPECT_EQ(
      as_nobody([&] { return f.reopened().find(digest_of(kKey), kKey).damage.empty() ? 1 : 0; }),
      0);
}

TEST(Store, LeavesNothingWhereTheDiskIsFull) {
  const int status = in_child([] {
    const TemporaryDirectory directory;
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=64k,mode=755") != 0)
      return 100;
    const auto body = [&] {
      Store store = *Store::open({.directory = directory.path()});
      const std::string large(200'000, 'x');
      if (store.publish("large", {}, bytes_of(large)).code() != ErrorCode::io_failed) return 1;
      if (!dot_names_below(directory.path()).empty() || !store.list()->empty()) return 2;
      if (!publish(store, kKey).ok() || !finds(store, kKey)) return 3;
      if (::mount(nullptr, directory.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
        return 100;
      if (!finds(store, kKey) || !publish(store, kKey).ok()) return 4;
      if (publish(store, "k=2").code() != ErrorCode::io_failed) return 5;
      return store.try_lock(digest_of("k=2")).outcome == LockOutcome::busy ? 6 : 0;
    };
    const int result = body();
    ::umount(directory.path().c_str());
    return result;
  });
  if (status == 100) GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(status, 0);
}

TEST(Store, SurvivesALimitOnFileSizes) {
  Fixture f;
  EXPECT_EQ(in_child([&] {
              const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              if (publish(f.store, kKey).code() != ErrorCode::io_failed) return 2;
              if (!f.store.publish("small", {}, {}).ok()) return 3;
              // The totals of the last shards lie further on than an entry is long.
              const rlimit lower{.rlim_cur = 100, .rlim_max = 100};
              if (::setrlimit(RLIMIT_FSIZE, &lower) != 0) return 4;
              for (int i = 0; i < 100; ++i)
                if (!f.store.publish(std::to_string(i), {}, {}).ok()) return 5;
              return f.store.trim({.max_bytes = 0}) ? 0 : 6;
            }),
            0);
  EXPECT_FALSE(f.store.find(digest_of(kKey), kKey).entry);
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
