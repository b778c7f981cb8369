// Store::keep_open(): look-ups through roots that stay open see what those by the path see.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kiln/cache/store.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {
namespace {

std::size_t descriptors_of(const fs::path& root) {
  std::size_t count = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
    count += fs::read_symlink(entry.path(), ignored) == root;
  return count;
}

TEST(KeepOpen, ARootStaysOpenAsLongAsSomebodyAsks) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_TRUE(finds(f.store, kKey));
  EXPECT_EQ(descriptors_of(f.root), 0u);
  auto first = f.store.keep_open();
  auto second = f.store.keep_open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(finds(f.store, kKey));
  EXPECT_EQ(descriptors_of(f.root), 1u);
  first.reset();
  EXPECT_TRUE(finds(f.store, kKey));
  EXPECT_EQ(descriptors_of(f.root), 1u);
  second.reset();
  EXPECT_EQ(descriptors_of(f.root), 0u);
  EXPECT_TRUE(finds(f.store, kKey));
  EXPECT_EQ(descriptors_of(f.root), 0u);
}

TEST(KeepOpen, WhatIsPublishedOrDeletedMeanwhileIsSeen) {
  Fixture f;
  const auto open = f.store.keep_open();
  EXPECT_FALSE(finds(f.store, kKey)) << "there is no root yet";
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_TRUE(finds(f.store, kKey));
  EXPECT_FALSE(finds(f.store, "k=2"));
  Store other = f.reopened();
  ASSERT_TRUE(publish(other, "k=2").ok());
  EXPECT_TRUE(finds(f.store, "k=2"));
  fs::remove(path_of(f.root, kKey));
  EXPECT_FALSE(finds(f.store, kKey));
  fs::remove_all(f.root);
  EXPECT_FALSE(finds(f.store, "k=2"));
  ASSERT_TRUE(publish(other, "k=2").ok());
  EXPECT_TRUE(finds(f.store, "k=2"));
  EXPECT_TRUE(f.warnings.empty());
}

TEST(KeepOpen, ATreeThatTakesTheRootsPlaceIsAsked) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const auto open = f.store.keep_open();
  EXPECT_TRUE(finds(f.store, kKey));
  fs::rename(f.root, f.directory / "aside");
  Store other = f.reopened();
  ASSERT_TRUE(publish(other, "k=2").ok());
  EXPECT_TRUE(finds(f.store, "k=2"));
  EXPECT_FALSE(finds(f.store, kKey)) << "now that its place is the new one's";
}

TEST(KeepOpen, ARootThatLosesItsTrustIsRefused) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const auto open = f.store.keep_open();
  EXPECT_TRUE(finds(f.store, kKey));
  ASSERT_EQ(::chmod(f.root.c_str(), 0777), 0);
  EXPECT_FALSE(finds(f.store, kKey));
  EXPECT_EQ(f.store.counters().tiers.at(0).refused, 1u);
  ASSERT_EQ(::chmod(f.root.c_str(), 0755), 0);
  EXPECT_TRUE(finds(f.store, kKey));
}

TEST(KeepOpen, DamageIsSeenAndToldOnce) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const auto open = f.store.keep_open();
  EXPECT_TRUE(finds(f.store, kKey));
  const auto path = path_of(f.root, kKey);
  fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
  test::write_file(path, "damaged");
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(finds(f.store, kKey));
  EXPECT_EQ(f.warnings.size(), 1u);
}

// A busy lock is seen without a try, and one that is free is taken at once.
TEST(KeepOpen, LocksOfOthersAreSeen) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const auto open = f.store.keep_open();
  EXPECT_TRUE(finds(f.store, kKey));
  Store other = f.reopened();
  const auto name = digest_of(kKey);
  for (int round = 0; round < 3; ++round) {
    auto held = other.try_lock(name);
    ASSERT_EQ(held.outcome, LockOutcome::held);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(f.store.try_lock(name).outcome, LockOutcome::busy);
    EXPECT_EQ(f.store.try_lock(digest_of("k=2")).outcome, LockOutcome::held);
    held.lock.release();
    EXPECT_EQ(f.store.try_lock(name).outcome, LockOutcome::held);
    // The lock file of a tree that is deleted shows nothing of that in its place.
    if (round == 1) fs::remove_all(f.root);
  }
}

TEST(KeepOpen, AForkAmongReadersLeavesTheChildWorking) {
#ifdef KILN_EMULATED
  GTEST_SKIP() << "QEMU itself does not survive a fork beside other threads";
#endif
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer's allocator may be locked by another thread at the fork";
#endif
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const auto open = f.store.keep_open();
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop) EXPECT_TRUE(finds(f.store, kKey));
    });
  for (int round = 0; round < 200; ++round) {
    const int status = test::in_child([&] {
      ::alarm(20);  // a child that waits for a mutex dies of this
      const auto again = f.store.keep_open();
      if (!finds(f.store, kKey)) return 1;
      return f.store.try_lock(digest_of(kKey)).outcome == LockOutcome::held ? 0 : 2;
    });
    EXPECT_EQ(status, 0) << "round " << round;
    if (status != 0) break;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST(KeepOpen, ReadOnlyTiersAreKeptAsWell) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  Store below = *Store::open({.read_only = {f.root}});
  {
    const auto open = below.keep_open();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(finds(below, kKey));
    EXPECT_EQ(descriptors_of(f.root), 1u);
  }
  EXPECT_EQ(descriptors_of(f.root), 0u);
}

}  // namespace
}  // namespace kiln::cache
