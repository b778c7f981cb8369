// What trimming takes and what it leaves, how long a publish may be at it, and clocks that are
// wrong.
#include <fcntl.h>
#include <gtest/gtest.h>

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
#include "tests/cache/limited_fixture.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {
namespace {

TEST(StoreTrim, APublishBeyondTheLimitRemovesWhatWasUsedLongestAgo) {
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

TEST(StoreTrim, ManyEntriesAreTrimmedShardByShardDownToTheLimit) {
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
TEST(StoreTrim, ASlowDiskDelaysAPublishByAFewFilesAndIsTrimmedAllTheSame) {
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

TEST(StoreTrim, WhereRemovingIsSlowAPublishRemovesAFew) {
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

TEST(StoreTrim, NoNameIsSparedByPatienceThatEndsEarly) {
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

TEST(StoreTrim, WhatIsYoungOrLockedStays) {
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

TEST(StoreTrim, AClockThatWasWrongMakesNothingImmortal) {
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
TEST(StoreTrim, AClockThatIsADayBackLosesNothingAndKeepsTheOrderOfUses) {
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
TEST(StoreTrim, AStampThatIsALittleAheadKeepsNothingFromATrimToNothing) {
  Limited f(3);
  for (int i = 0; i < 3; ++i) set_age(f.root, key_of(i), -5min);
  EXPECT_EQ(f.store.clear()->entries, 3u);
  EXPECT_TRUE(present(f.root, 3).empty());
}

TEST(StoreTrim, OnlyAUseIsNotedAndNoOftenerThanHourly) {
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

// In a store that users share, one cannot set the time of another's entry.
TEST(StoreTrim, AUseThatCannotBeNotedKeepsNoOtherFromBeingNoted) {
  Limited f(2);
  static int refusals = 0;
  refusals = 1;
  SystemCalls calls = kRealCalls;
  calls.futimens = [](int fd, const timespec* times) {
    return refusals-- > 0 ? (errno = EPERM, -1) : kRealCalls.futimens(fd, times);
  };
  Store store = *StoreWithCalls::open({.directory = f.root}, calls);
  const auto path = path_of(f.root, key_of(1));
  const auto before = fs::last_write_time(path);
  EXPECT_TRUE(finds(store, key_of(0)));
  EXPECT_TRUE(finds(store, key_of(1)));
  EXPECT_GT(fs::last_write_time(path), before);
}

TEST(StoreTrim, TrimTakesWhatIsOldAndTellsItBefore) {
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

// It comes first in the order of removal, and of its use nothing is known.
TEST(StoreTrim, AStampOfAWrongClockKeepsNothingOldFromGoing) {
  Limited f(3);
  set_age(f.root, key_of(0), -48h);
  EXPECT_EQ(f.store.trim({.older_than = 40h})->removed.size(), 2u);
  EXPECT_EQ(present(f.root, 3), (std::set<int>{0}));
  EXPECT_EQ(f.store.trim({.max_bytes = 0})->removed.size(), 1u);
}

// Not even the totals, which any other trim puts right.
TEST(StoreTrim, ADryRunWritesNothing) {
  Limited f(3);
  fs::remove(f.root / "v1/usage");
  fs::remove(f.root / "v1/lock");
  ASSERT_EQ(f.store.trim({.max_bytes = 0, .dry_run = true})->removed.size(), 3u);
  EXPECT_FALSE(fs::exists(f.root / "v1/usage"));
  EXPECT_FALSE(fs::exists(f.root / "v1/lock"));
}

TEST(StoreTrim, OneProcessTrimsAtATime) {
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

}  // namespace
}  // namespace kiln::cache
