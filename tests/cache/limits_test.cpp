// How large a store may grow: totals, the floor of free space, failures of the disk, and clearing
// up.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/probe.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/limited_fixture.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {
namespace {

using test::in_child;
using test::write_file;

TEST(StoreLimits, TotalsAreKeptByEveryChange) {
  Limited f(20);
  expect_exact_totals(f.store);
  ASSERT_TRUE(f.store.discard(digest_of(key_of(3))).ok());
  expect_exact_totals(f.store);
  ASSERT_TRUE(publish(f.store, key_of(3)).ok());
  ASSERT_TRUE(publish(f.store, key_of(3)).ok());  // is there
  expect_exact_totals(f.store);
  // Records, temporaries and damage of the same size do not count as more than they are.
  ASSERT_TRUE(f.store.add_record("tools", "a").ok());
  const auto path = path_of(f.root, key_of(4));
  write_file(path, std::string(fs::file_size(path), 'x'));
  ASSERT_TRUE(publish(f.store, key_of(4)).ok());
  ASSERT_GE(f.store.trim({.max_bytes = f.bytes / 2})->removed.size(), 10u);
  expect_exact_totals(f.store);
  ASSERT_TRUE(f.store.clear());
  expect_exact_totals(f.store);
  EXPECT_EQ(f.store.measure()->kept, Totals{});
}

TEST(StoreLimits, TotalsThatAreLostAreCountedAgain) {
  for (const char* usage : {"", "x", "torn"}) {
    Limited f(40);
    const auto file = f.root / "v1/usage";
    const auto good = test::read_file(file);
    if (usage == std::string("torn")) {
      auto torn = good;
      for (std::size_t i = 0; i < torn.size(); i += 16) torn[i] = static_cast<char>(torn[i] ^ 1);
      write_file(file, torn);
    } else {
      write_file(file, usage);
    }
    EXPECT_FALSE(f.store.measure()->kept);
    ASSERT_TRUE(f.store.trim({.older_than = 1000h}));
    expect_exact_totals(f.store);
    // A publish counts the shard that it writes to.
    write_file(file, "");
    ASSERT_TRUE(f.store.discard(digest_of(key_of(0))).ok());
    ASSERT_TRUE(publish(f.store, key_of(0)).ok());
    EXPECT_GT(fs::file_size(file), 0u);
  }
}

TEST(StoreLimits, WhatStandsInThePlaceOfTheTotalsGivesWayToThem) {
  for (const char* what : {"a pipe", "a link", "a directory"}) {
    SCOPED_TRACE(what);
    Limited f(3);
    const auto file = f.root / "v1/usage";
    fs::remove(file);
    if (what == std::string("a pipe")) {
      ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    } else if (what == std::string("a link")) {
      write_file(f.directory / "diary", "dear");
      fs::create_symlink(f.directory / "diary", file);
    } else {
      fs::create_directory(file);
    }
    Store store = f.limited(f.bytes);
    ASSERT_TRUE(store.trim({.older_than = 1000h}));
    expect_exact_totals(store);
    ASSERT_TRUE(publish(store, "one more").ok());
    EXPECT_LE(store.measure()->entries.bytes, f.bytes) << "the limit is kept";
    EXPECT_TRUE(what != std::string("a link") || test::read_file(f.directory / "diary") == "dear");
  }
}

TEST(StoreLimits, TheFloorOfFreeSpaceRefusesWhatTrimmingCannotMakeRoomFor) {
  Limited f(10);
  Store store = f.open({.min_free_bytes = std::uint64_t{1} << 60, .grace = 10min});
  for (int i = 0; i < 2; ++i) expect_useful(publish(store, "one more"), f.root);
  EXPECT_TRUE(present(f.root, 10).empty()) << "what is old goes first";
  EXPECT_EQ(store.counters().no_space, 2u);
  ASSERT_EQ(f.warnings.size(), 1u);
  EXPECT_NE(f.warnings[0].find("KILN_CACHE_MIN_FREE_BYTES"), std::string::npos) << f.warnings[0];
  EXPECT_TRUE(publish(f.store, "one more").ok()) << "the default floor is lower than that";
}

int room_for = 0;  // files that may still be made

// As where a quota is reached, or a file system has room for bytes and none for files.
TEST(StoreLimits, WhatIsOldMakesRoomWhereTheDiskTakesNoMore) {
  for (const int error : {ENOSPC, EDQUOT}) {
    Limited f(20);
    SystemCalls calls = f.calls;
    static int refusal = 0;
    refusal = error;
    room_for = 0;
    calls.writev = [](int fd, const iovec* parts, int count) {
      if (room_for <= 0) return errno = refusal, ssize_t{-1};
      return --room_for, kRealCalls.writev(fd, parts, count);
    };
    calls.unlinkat = [](int directory, const char* path, int flags) {
      return ++room_for, kRealCalls.unlinkat(directory, path, flags);
    };
    step_of_clock = 0;
    const auto open = [&](std::chrono::seconds grace) {
      return *StoreWithCalls::open(
          {.directory = f.root, .log = f.sink(), .limits = {.grace = grace}}, calls);
    };
    Store store = open(1h);
    EXPECT_TRUE(publish(store, "one more").ok());
    EXPECT_TRUE(finds(store, "one more"));
    EXPECT_EQ(store.counters().no_space, 0u);
    EXPECT_TRUE(f.warnings.empty());
    const auto left = present(f.root, 20);
    EXPECT_GE(left.size(), 15u);
    EXPECT_FALSE(left.contains(0)) << "the oldest goes first";
    expect_exact_totals(store);
    // What is in use stays.
    Store young = open(1000h);
    room_for = 0;
    expect_useful(publish(young, "and more"), f.root);
    EXPECT_EQ(present(f.root, 20), left);
    EXPECT_EQ(f.warnings.size(), 1u);
  }
}

// Such as a tmpfs without a limit, and many file systems in user space.
TEST(StoreLimits, AFileSystemThatTellsNoSizeIsNotFull) {
  const test::TemporaryDirectory directory;
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=0,mode=755") != 0)
      return 100;
    Store store = *Store::open({.directory = directory.path()});
    const bool works = publish(store, kKey).ok() && finds(store, kKey) &&
                       !store.measure()->free_bytes && !probe(directory.path()).free_bytes;
    ::umount2(directory.path().c_str(), MNT_DETACH);
    return works ? 0 : 1;
  });
  if (status == 100) GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(status, 0);
}

TEST(StoreLimits, AFloorBeyondAnyDiskIsNotTakenForNone) {
  Fixture f;
  Store store = *Store::open({.directory = f.root, .limits = {.min_free_bytes = UINT64_MAX}});
  expect_useful(publish(store, kKey), f.root);
}

// Network file systems without locks: totals may be off by what two write at once, and the limit is
// kept by them all the same.
TEST(StoreLimits, TheLimitIsKeptWhereLocksDoNotWork) {
  for (const int error : {ENOLCK, EOPNOTSUPP, EINVAL}) {
    Limited f(20);
    SystemCalls calls = f.calls;  // however busy the machine is
    step_of_clock = cost_of_removal = 0;
    static int refusal = 0;
    refusal = error;
    calls.set_lock = [](int, const struct flock*) { return errno = refusal, -1; };
    Store store = *StoreWithCalls::open(
        {.directory = f.root, .limits = {.max_bytes = f.bytes / 2, .min_free_bytes = 0}}, calls);
    ASSERT_TRUE(publish(store, "one more").ok());
    EXPECT_LE(store.measure()->entries.bytes, f.bytes / 2);
    EXPECT_TRUE(finds(store, "one more"));
    fs::remove(f.root / "v1/usage");
    ASSERT_TRUE(store.trim({.older_than = 1000h}));
    expect_exact_totals(store);
  }
}

int failing = 0;

TEST(StoreLimits, EachFailureOfTheDiskIsCountedAndWarnedOfOnce) {
  SystemCalls calls = kRealCalls;
  calls.writev = [](int fd, const iovec* parts, int count) {
    if (failing != 0) return errno = failing, ssize_t{-1};
    return kRealCalls.writev(fd, parts, count);
  };
  Fixture f;
  Store store = *StoreWithCalls::open({.directory = f.root, .log = f.sink()}, calls);
  ASSERT_TRUE(publish(store, "good").ok());
  struct {
    int error;
    std::uint64_t StoreCounters::*counter;
    const char* cure;
  } const cases[] = {
      {ENOSPC, &StoreCounters::no_space, "KILN_CACHE_MAX_BYTES"},
      {EDQUOT, &StoreCounters::no_space, "KILN_CACHE_MAX_BYTES"},
      {EROFS, &StoreCounters::not_writable, "KILN_CACHE_READONLY"},
      {EMFILE, &StoreCounters::no_descriptors, "ulimit -n"},
      {EFBIG, &StoreCounters::io_errors, "ulimit -f"},
      {EIO, &StoreCounters::io_errors, "disk"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(::strerrordesc_np(c.error));
    f.warnings.clear();
    const auto before = store.counters().*c.counter;
    failing = c.error;
    for (int i = 0; i < 3; ++i) expect_useful(publish(store, kKey), f.root);
    failing = 0;
    EXPECT_EQ(store.counters().*c.counter, before + 3);
    ASSERT_EQ(f.warnings.size(), 1u);
    EXPECT_NE(f.warnings[0].find(c.cure), std::string::npos) << f.warnings[0];
    EXPECT_NE(f.warnings[0].find(::strerrordesc_np(c.error)), std::string::npos) << f.warnings[0];
    EXPECT_TRUE(finds(store, "good")) << "serving goes on";
  }
  expect_exact_totals(store);
  EXPECT_TRUE(test::dot_names_below(f.root).empty());
}

TEST(StoreLimits, ServesAndRefusesWithoutDescriptors) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer opens pipes to look at memory, and takes it for bad without";
#endif
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_EQ(in_child([&] {
              rlimit limit{.rlim_cur = 3, .rlim_max = 3};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
              const Found found = f.store.find(digest_of(kKey), kKey);
              if (found.entry || !found.damage.empty()) return 2;
              if (publish(f.store, "k=2").code() != ErrorCode::io_failed) return 3;
              return f.store.counters().no_descriptors == 1 ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(finds(f.store, kKey));
}

TEST(StoreLimits, ASmallDiskIsNeverFilled) {
  const test::TemporaryDirectory directory;
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=1m,mode=755") != 0)
      return 100;
    const auto body = [&] {
      Store store = *Store::open(
          {.directory = directory.path(), .limits = {.min_free_bytes = 200'000, .grace = 0s}});
      for (int i = 0; i < 200; ++i)
        if (!publish(store, key_of(i)).ok()) return 1;
      const auto size = store.measure();
      if (!size || size->free_bytes < 200'000 || size->kept != size->entries) return 2;
      return size->entries.entries > 20 && finds(store, key_of(199)) ? 0 : 3;
    };
    const int result = body();
    ::umount2(directory.path().c_str(), MNT_DETACH);
    return result;
  });
  if (status == 100) GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(status, 0);
}

// A real quota, which this file system alone enforces on any kernel that has it.
TEST(StoreLimits, AQuotaThatIsReachedIsCountedAndServedThrough) {
  if (std::system("command -v btrfs >/dev/null") != 0) GTEST_SKIP() << "needs btrfs-progs";
  const test::TemporaryDirectory directory;
  const int status = in_child([&] {
    const std::string at = directory / "mounted";
    const std::string image = directory / "image";
    const std::string make = "mkdir " + at + " && truncate -s 128M " + image +
                             " && mkfs.btrfs -q " + image + " && mount -o loop " + image + " " +
                             at + " && btrfs quota enable " + at + " && btrfs qgroup limit 400K " +
                             at;
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        std::system(("{ " + make + "; } >/dev/null 2>&1").c_str()) != 0)
      return 100;
    const auto body = [&] {
      std::vector<std::string> warnings;
      Store store = *Store::open(
          {.directory = fs::path(at) / "cache",
           .log = [&](LogLevel, std::string_view text) { warnings.emplace_back(text); },
           .limits = {.min_free_bytes = 0}});
      int stored = 0;
      while (stored < 100 && publish(store, key_of(stored)).ok()) ++stored;
      if (stored < 2 || stored == 100) return 1;
      for (int i = 0; i < 3; ++i)
        if (publish(store, key_of(stored + i)).ok()) return 2;
      if (store.counters().no_space != 4 || warnings.size() != 1 ||
          warnings[0].find("quota") == std::string::npos ||
          warnings[0].find("KILN_CACHE_MAX_BYTES") == std::string::npos)
        return 3;
      for (int i = 0; i < stored; ++i)
        if (!finds(store, key_of(i))) return 4;
      if (store.measure()->kept != store.measure()->entries) return 5;
      if (!test::dot_names_below(at).empty()) return 6;
      // What was freed counts when it is on the disk.
      if (!store.clear()) return 7;
      const Fd top(::open(at.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      ::syncfs(top.get());
      return publish(store, kKey).ok() && finds(store, kKey) ? 0 : 8;
    };
    const int result = body();
    ::umount2(at.c_str(), MNT_DETACH);
    return result;
  });
  if (status == 100) GTEST_SKIP() << "needs the right to mount, and btrfs in the kernel";
  EXPECT_EQ(status, 0);
}

TEST(StoreLimits, RepairRemovesDamageOrPutsItAside) {
  for (const Repair how : {Repair::remove, Repair::quarantine}) {
    Limited f(3);
    ASSERT_TRUE(f.store.add_record("tools", "a").ok());
    write_file(path_of(f.root, key_of(1)), "damaged");
    write_file(f.root / "v1/r/tools" / digest_of("a").hex(), "damaged");
    const auto found = f.store.repair(how);
    ASSERT_TRUE(found);
    EXPECT_EQ(std::count_if(found->begin(), found->end(),
                            [](const EntryInfo& info) { return !info.damage.empty(); }),
              2);
    EXPECT_EQ(f.store.verify()->size(), 2u);
    EXPECT_EQ(f.store.measure()->quarantined.entries, how == Repair::quarantine ? 2u : 0u);
    EXPECT_TRUE(publish(f.store, key_of(1)).ok());
    ASSERT_TRUE(f.store.clear());
    EXPECT_EQ(f.store.measure()->quarantined.entries, 0u);
    EXPECT_TRUE(f.store.verify()->empty());
  }
}

TEST(StoreLimits, ClearingTakesNothingThatAStoreDoesNotMakeAndMakesNone) {
  Fixture f;
  const std::string hex(32, 'a');
  const std::vector<std::string> kept = {
      "letter",         "v1/letter",         "v1/e/letter",
      "v1/e/ab/letter", "v1/q/letter",       "v1/q/" + hex,
      "v1/r/letter",    "v1/r/letters/dear", "v1/q/" + hex + "-0123456789abcdeg",
      "v1/r/" + hex};
  const std::vector<std::string> taken = {"v1/e/ab/" + std::string(30, 'a'), "v1/r/tools/" + hex,
                                          "v1/q/" + hex + "-0123456789abcdef"};
  for (const auto& files : {kept, taken})
    for (const auto& name : files) {
      fs::create_directories((f.root / name).parent_path());
      write_file(f.root / name, "x");
    }
  ASSERT_TRUE(f.store.clear());
  for (const auto& name : kept) EXPECT_TRUE(fs::exists(f.root / name)) << name;
  for (const auto& name : taken) EXPECT_FALSE(fs::exists(f.root / name)) << name;

  fs::remove_all(f.root / "v1");
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(f.store.clear() && f.store.trim({.max_bytes = 0}) && f.store.collect_garbage());
    EXPECT_TRUE(f.store.repair(Repair::quarantine)->empty());
    EXPECT_FALSE(fs::exists(f.root / "v1"));
    fs::remove_all(f.root);
  }
  EXPECT_FALSE(fs::exists(f.root));
}

TEST(StoreLimits, GarbageIsOnlyWhatIsOlderThanAnHour) {
  Limited f(1);
  const auto shard = path_of(f.root, key_of(0)).parent_path();
  for (const char* name :
       {".tmp-00000000000000aa", ".tmp-00000000000000bb", ".tmp-00000000000000cc"})
    write_file(shard / name, "x");
  fs::last_write_time(shard / ".tmp-00000000000000aa", fs::file_time_type::clock::now() - 2h);
  fs::last_write_time(shard / ".tmp-00000000000000cc", fs::file_time_type::clock::now() + 24h);
  EXPECT_EQ(f.store.measure()->temporaries.entries, 3u);
  EXPECT_EQ(*f.store.collect_garbage(), 2u) << "of a clock that was wrong, too";
  EXPECT_EQ(test::dot_names_below(f.root), std::vector<std::string>{".tmp-00000000000000bb"});

  fs::last_write_time(shard / ".tmp-00000000000000bb", fs::file_time_type::clock::now() - 2h);
  SystemCalls calls = kRealCalls;
  calls.unlinkat = [](int, const char*, int) { return errno = EROFS, -1; };
  Store store = *StoreWithCalls::open({.directory = f.root}, calls);
  EXPECT_FALSE(store.collect_garbage());
}

}  // namespace
}  // namespace kiln::cache
