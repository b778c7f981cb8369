// How large a store may grow: totals, trimming by use, what stays, and failures of the disk.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;
using test::in_child;
using test::write_file;

std::string key_of(int number) {
  return "key " + std::to_string(number);
}

void set_age(const fs::path& root, const std::string& key, std::chrono::seconds age) {
  fs::last_write_time(path_of(root, key), fs::file_time_type::clock::now() - age);
}

/// The numbers of the keys that are there, of `count`.
std::set<int> present(const fs::path& root, int count) {
  std::set<int> found;
  for (int i = 0; i < count; ++i)
    if (fs::exists(path_of(root, key_of(i)))) found.insert(i);
  return found;
}

void expect_exact_totals(const Store& store) {
  const auto size = store.measure();
  ASSERT_TRUE(size) << size.error().message();
  ASSERT_TRUE(size->kept);
  EXPECT_EQ(*size->kept, size->entries);
}

std::int64_t step_of_clock = 0;    // nanoseconds that a look at the steady clock takes
std::int64_t cost_of_removal = 0;  // nanoseconds
std::int64_t lead_of_clock = 0;    // seconds that the wall clock is ahead
int looked_at = 0;

/// Clocks that do not depend on how busy the machine is.
SystemCalls calls_with_clocks() {
  SystemCalls calls = kRealCalls;
  static std::int64_t steady = 0;
  calls.clock_gettime = [](clockid_t clock, timespec* to) {
    if (clock == CLOCK_REALTIME) {
      const int result = kRealCalls.clock_gettime(clock, to);
      to->tv_sec += lead_of_clock;
      return result;
    }
    steady += step_of_clock;
    *to = {.tv_sec = steady / 1'000'000'000, .tv_nsec = steady % 1'000'000'000};
    return 0;
  };
  calls.fstatat = [](int directory, const char* path, struct stat* to, int flags) {
    ++looked_at;
    return kRealCalls.fstatat(directory, path, to, flags);
  };
  calls.unlinkat = [](int directory, const char* path, int flags) {
    steady += cost_of_removal;
    return kRealCalls.unlinkat(directory, path, flags);
  };
  return calls;
}

/// A store with a limit, and `count` entries of about 10 KB, the first ones used longest ago.
struct Limited : Fixture {
  explicit Limited(int count) {
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(publish(store, key_of(i)).ok());
      set_age(root, key_of(i), 100h - std::chrono::minutes(i));
    }
    bytes = store.measure()->entries.bytes;
  }
  Store limited(std::uint64_t most, std::chrono::seconds grace = 10min) {
    return open({.max_bytes = most, .min_free_bytes = 0, .grace = grace});
  }
  /// Over calls_with_clocks(), whose time stands still.
  Store open(const Limits& limits) {
    step_of_clock = cost_of_removal = lead_of_clock = 0;
    return *StoreWithCalls::open({.directory = root, .log = sink(), .limits = limits}, calls);
  }
  std::uint64_t bytes = 0;
  const SystemCalls calls = calls_with_clocks();
};

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

TEST(StoreLimits, APublishBeyondTheLimitRemovesWhatWasUsedLongestAgo) {
  Limited f(40);
  Store store = f.limited(f.bytes);
  set_age(f.root, key_of(0), 11min);  // one old entry that was used lately
  ASSERT_TRUE(publish(store, "one more").ok());
  const auto size = store.measure();
  EXPECT_LE(size->entries.bytes, f.bytes / 10 * 9);
  EXPECT_GT(size->entries.bytes, f.bytes / 10 * 8);
  const auto left = present(f.root, 40);
  EXPECT_TRUE(left.count(0)) << "it was used lately";
  const auto gone = 40 - left.size();
  EXPECT_GE(gone, 4u);
  for (std::size_t i = 1; i <= gone; ++i) EXPECT_FALSE(left.count(static_cast<int>(i))) << i;
  EXPECT_TRUE(finds(store, "one more"));
  expect_exact_totals(store);
  EXPECT_EQ(store.counters().trimmed.entries, gone);
  EXPECT_TRUE(f.warnings.empty());
}

TEST(StoreLimits, ManyEntriesAreTrimmedShardByShardDownToTheLimit) {
  test::use_memory_for_temporary_files();
  Fixture f;
  constexpr int kCount = 2000;
  const std::string payload(1000, 'p');
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(f.store.publish(key_of(i), {}, bytes_of(payload)).ok());
    set_age(f.root, key_of(i), 100h - std::chrono::minutes(i));
  }
  const auto bytes = f.store.measure()->entries.bytes;
  const SystemCalls calls = calls_with_clocks();
  Store store = *StoreWithCalls::open({.directory = f.root,
                                       .log = f.sink(),
                                       .limits = {.max_bytes = bytes / 2, .min_free_bytes = 0}},
                                      calls);
  // On a disk where each file takes a twentieth of a millisecond.
  step_of_clock = 50'000;
  for (int i = 0; i < 400; ++i) {
    const auto before = store.counters().trimmed.entries;
    ASSERT_TRUE(store.publish("more " + std::to_string(i), {}, bytes_of(payload)).ok());
    EXPECT_LE(store.counters().trimmed.entries, before + 25) << "a little, never all at once";
  }
  EXPECT_LE(store.measure()->entries.bytes, bytes / 2);
  EXPECT_GT(store.measure()->entries.bytes, bytes / 5 * 2);
  expect_exact_totals(store);
  const auto left = present(f.root, kCount);
  const auto of_old_half =
      std::count_if(left.begin(), left.end(), [](int i) { return i < kCount / 2; });
  EXPECT_LT(of_old_half, static_cast<long>(left.size() / 4)) << "the old half went first";
  EXPECT_EQ(store.list()->size() - left.size(), 400u) << "what is young stayed";
}

// What is looked at is in memory or has to be fetched from the disk, and nobody waits for much of
// that.
TEST(StoreLimits, ASlowDiskDelaysAPublishByAFewFilesAndIsTrimmedAllTheSame) {
  test::use_memory_for_temporary_files();
  Limited f(400);
  Store store = f.limited(f.bytes);
  step_of_clock = 5'000'000;
  for (int i = 0; i < 100; ++i) {
    looked_at = 0;
    const auto before = store.counters().trimmed.entries;
    ASSERT_TRUE(publish(store, "more " + std::to_string(i)).ok());
    EXPECT_LE(looked_at, 12);
    EXPECT_LE(store.counters().trimmed.entries, before + 2);
    const auto size = store.measure()->entries;
    EXPECT_LE(size.bytes, f.bytes + f.bytes / 50);
  }
  expect_exact_totals(store);
  EXPECT_EQ(store.list()->size() - present(f.root, 400).size(), 100u) << "what is young stayed";
  const auto left = present(f.root, 400);
  const auto older = std::count_if(left.begin(), left.end(), [](int i) { return i < 200; });
  EXPECT_LT(older, static_cast<long>(left.size() - static_cast<std::size_t>(older)));
}

TEST(StoreLimits, WhereRemovingIsSlowAPublishRemovesAFew) {
  test::use_memory_for_temporary_files();
  Limited f(200);
  Store store = f.limited(f.bytes / 2);
  cost_of_removal = 300'000;
  for (int i = 0; i < 20; ++i) {
    const auto before = store.counters().trimmed.entries;
    ASSERT_TRUE(publish(store, "more " + std::to_string(i)).ok());
    EXPECT_EQ(store.counters().trimmed.entries, before + 4);
  }
  expect_exact_totals(store);
}

TEST(StoreLimits, NoNameIsSparedByPatienceThatEndsEarly) {
  test::use_memory_for_temporary_files();
  std::vector<std::string> keys;  // of one shard
  for (int i = 0; keys.size() < 60; ++i)
    if (digest_of(key_of(i)).high >> 56 == 7) keys.push_back(key_of(i));
  std::sort(keys.begin(), keys.begin() + 40,
            [](const std::string& a, const std::string& b) { return digest_of(a) < digest_of(b); });
  Limited f(0);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(publish(f.store, keys[static_cast<std::size_t>(i)]).ok());
    set_age(f.root, keys[static_cast<std::size_t>(i)], 1h + std::chrono::minutes(i));
  }
  Store store = f.limited(f.store.measure()->entries.bytes);
  step_of_clock = 5'000'000;
  for (std::size_t i = 40; i < 60; ++i) ASSERT_TRUE(publish(store, keys[i]).ok());
  const auto gone = [&](std::size_t from, std::size_t to) {
    return std::count_if(&keys[from], &keys[to],
                         [&](const std::string& key) { return !fs::exists(path_of(f.root, key)); });
  };
  EXPECT_GT(gone(20, 40), gone(0, 20)) << "the last by name were used longest ago";
}

TEST(StoreLimits, WhatIsYoungOrLockedStays) {
  Limited f(10);
  for (int i = 0; i < 5; ++i) set_age(f.root, key_of(i), 9min);
  Store store = f.limited(1000);
  const auto held = f.store.try_lock(digest_of(key_of(5)));
  ASSERT_EQ(held.outcome, LockOutcome::held);
  ASSERT_TRUE(publish(store, "one more").ok());
  EXPECT_EQ(present(f.root, 10), (std::set<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(finds(store, "one more"));
  const auto report = store.trim({.max_bytes = 0, .grace = 10min});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->removed.empty());
  EXPECT_EQ(report->in_use, 1u);
  // Without a grace period only the lock counts.
  EXPECT_EQ(store.trim({.max_bytes = 0})->removed.size(), 6u);
  EXPECT_EQ(present(f.root, 10), std::set<int>{5});
}

TEST(StoreLimits, AClockThatWasWrongMakesNothingImmortal) {
  Limited f(3);
  set_age(f.root, key_of(1), -100h);
  Store store = f.limited(1000);
  ASSERT_TRUE(publish(store, "one more").ok());
  EXPECT_TRUE(present(f.root, 3).empty());
  // And a use puts the stamp right.
  ASSERT_TRUE(publish(f.store, key_of(1)).ok());
  set_age(f.root, key_of(1), -100h);
  EXPECT_TRUE(finds(f.store, key_of(1)));
  const auto age =
      fs::file_time_type::clock::now() - fs::last_write_time(path_of(f.root, key_of(1)));
  EXPECT_LT(std::chrono::abs(age), 1h);
}

// When an entry was used that has a stamp of the day after, nobody knows: it goes first.
TEST(StoreLimits, AClockThatIsADayBackLosesNothingAndKeepsTheOrderOfUses) {
  Limited f(40);
  Store store = f.limited(f.bytes);
  lead_of_clock = -24 * 3600;
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(finds(store, key_of(i)));
    set_age(f.root, key_of(i), i < 20 ? 25h : 2h - std::chrono::minutes(i));
  }
  ASSERT_TRUE(publish(store, "one more").ok());
  const auto left = present(f.root, 40);
  EXPECT_LT(left.size(), 40u);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(left.count(i)) << i << " was used an hour ago";
  EXPECT_FALSE(left.count(20)) << "of the others the one of longest ago goes first";
  EXPECT_TRUE(left.count(39));
  EXPECT_TRUE(finds(store, "one more"));
  expect_exact_totals(store);
}

// Servers of files have clocks of their own.
TEST(StoreLimits, AStampThatIsALittleAheadKeepsNothingFromATrimToNothing) {
  Limited f(3);
  for (int i = 0; i < 3; ++i) set_age(f.root, key_of(i), -5min);
  EXPECT_EQ(f.store.clear()->entries, 3u);
  EXPECT_TRUE(present(f.root, 3).empty());
}

TEST(StoreLimits, OnlyAUseIsNotedAndNoOftenerThanHourly) {
  Limited f(1);
  const auto path = path_of(f.root, key_of(0));
  const auto before = fs::last_write_time(path);
  ASSERT_TRUE(f.store.read(digest_of(key_of(0))));
  ASSERT_TRUE(f.store.look_at(digest_of(key_of(0))));
  ASSERT_TRUE(f.store.verify());
  EXPECT_EQ(fs::last_write_time(path), before);
  EXPECT_TRUE(finds(f.store, key_of(0)));
  EXPECT_GT(fs::last_write_time(path), before + 50h);
  set_age(f.root, key_of(0), 59min);
  const auto lately = fs::last_write_time(path);
  EXPECT_TRUE(finds(f.store, key_of(0)));
  EXPECT_EQ(fs::last_write_time(path), lately);
}

TEST(StoreLimits, TrimTakesWhatIsOldAndTellsItBefore) {
  Limited f(10);
  for (int i = 0; i < 6; ++i) set_age(f.root, key_of(i), 50h - std::chrono::hours(i));
  for (int i = 6; i < 10; ++i) set_age(f.root, key_of(i), 1h);
  const auto plan = f.store.trim({.older_than = 40h, .dry_run = true});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->removed.size(), 6u);
  EXPECT_EQ(plan->removed.front().name, digest_of(key_of(0)));
  EXPECT_EQ(present(f.root, 10).size(), 10u);
  const auto done = f.store.trim({.older_than = 40h});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->removed.size(), 6u);
  EXPECT_EQ(done->left, plan->left);
  EXPECT_EQ(present(f.root, 10), (std::set<int>{6, 7, 8, 9}));
}

TEST(StoreLimits, OneProcessTrimsAtATime) {
  Limited f(3);
  SystemCalls calls = kRealCalls;
  calls.set_lock = [](int fd, const struct flock* lock) {
    if (lock->l_start == off_t{1} << 62 && lock->l_type == F_WRLCK) return errno = EAGAIN, -1;
    return kRealCalls.set_lock(fd, lock);
  };
  Store store = *StoreWithCalls::open(
      {.directory = f.root, .limits = {.max_bytes = 1, .min_free_bytes = 0, .grace = 0s}}, calls);
  ASSERT_TRUE(publish(store, "one more").ok());
  EXPECT_EQ(present(f.root, 3).size(), 3u);
  EXPECT_NE(store.trim({.max_bytes = 0}).error().message().find("another process"),
            std::string::npos);
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
}

}  // namespace
}  // namespace kiln::cache
