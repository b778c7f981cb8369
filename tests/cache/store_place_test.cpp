// Where a store may lie, and what it does where it is of no use: bad paths, links, other users,
// full disks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/store_fixture.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::dot_names_below;
using test::in_child;
using test::write_file;

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

}  // namespace
}  // namespace kiln::cache
