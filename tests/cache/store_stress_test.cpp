#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::dot_names_below;
using test::in_child;
using test::start_child;
using test::TemporaryDirectory;
using test::wait_for;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr unsigned kKeys = 5;

std::string nth_key(unsigned index) {
  return "key " + std::to_string(index);
}

/// The one payload that is right for a key; sizes from 300 bytes to 80 KB.
std::string payload_of(unsigned index) {
  std::string payload(300 + 20'000 * index, static_cast<char>('a' + index));
  payload += nth_key(index);
  return payload;
}

bool is_right(const Entry& entry, unsigned index) {
  const std::string payload = payload_of(index);
  return entry.payload().size() == payload.size() &&
         std::memcmp(entry.payload().data(), payload.data(), payload.size()) == 0;
}

enum Outcome : int { all_right = 0, wrong_bytes, damaged, failed_publish };

/// Publishes and finds random keys until `end`.
int work(Store& store, unsigned seed, Clock::time_point end) {
  std::minstd_rand random(seed);
  while (Clock::now() < end) {
    const unsigned index = static_cast<unsigned>(random() % kKeys);
    const std::string key = nth_key(index);
    const Found found = store.find(digest_of(key), key);
    if (!found.damage.empty()) return damaged;
    if (found.entry && !is_right(*found.entry, index)) return wrong_bytes;
    if (found.entry && random() % 4 != 0) continue;
    const LockAttempt attempt = store.try_lock(digest_of(key));
    if (attempt.outcome == LockOutcome::busy && random() % 2 == 0) continue;
    const std::string payload = payload_of(index);
    if (!store.publish(key, "{}", std::as_bytes(std::span(payload))).ok()) return failed_publish;
  }
  return all_right;
}

/// A process of several threads, each doing `work`.
int work_in_threads(const std::filesystem::path& root, unsigned seed, Clock::time_point end) {
  Store store = *Store::open({.directory = root});
  std::vector<int> outcomes(3);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < outcomes.size(); ++i)
    threads.emplace_back([&, i] { outcomes[i] = work(store, 100 * seed + i, end); });
  for (auto& thread : threads) thread.join();
  for (const int outcome : outcomes)
    if (outcome != all_right) return outcome;
  return all_right;
}

void run_processes(const std::filesystem::path& root, Clock::time_point end) {
  std::vector<pid_t> children;
  for (unsigned seed = 1; seed <= 6; ++seed)
    children.push_back(start_child([&] { return work_in_threads(root, seed, end); }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), all_right);
}

TEST(StoreStress, ManyProcessesAndThreadsNeverSeeAWrongByte) {
  const TemporaryDirectory directory;
  run_processes(directory / "cache", Clock::now() + 2s);
  EXPECT_TRUE(dot_names_below(directory.path()).empty());
  EXPECT_EQ((*Store::open({.directory = directory / "cache"})).verify()->size(), kKeys);
}

TEST(StoreStress, ADirectoryThatIsDeletedAgainAndAgainSurfacesNoError) {
  const TemporaryDirectory directory;
  const auto root = directory / "cache";
  const auto end = Clock::now() + 3s;
  const pid_t deleter = start_child([&] {
    std::error_code ignored;
    while (Clock::now() < end) {
      std::filesystem::remove_all(root, ignored);
      std::this_thread::sleep_for(500us);
    }
    return 0;
  });
  run_processes(root, end);
  EXPECT_EQ(wait_for(deleter), 0);
  EXPECT_TRUE(dot_names_below(directory.path()).empty());
}

TEST(StoreStress, DamageDoneWhileOthersWorkIsRepairedAndNeverServed) {
  const TemporaryDirectory directory;
  const auto root = directory / "cache";
  const auto end = Clock::now() + 2s;
  const pid_t vandal = start_child([&] {
    std::minstd_rand random(7);
    while (Clock::now() < end) {
      const std::string hex = digest_of(nth_key(static_cast<unsigned>(random() % kKeys))).hex();
      const auto path = root / "v1/e" / hex.substr(0, 2) / hex.substr(2);
      const std::string junk(random() % 500, 'j');
      if (std::filesystem::exists(path)) test::write_file(path, junk);
      std::this_thread::sleep_for(300us);
    }
    return 0;
  });
  std::vector<pid_t> children;
  for (unsigned seed = 1; seed <= 4; ++seed)
    children.push_back(start_child([&] {
      Store store = *Store::open({.directory = root});
      std::minstd_rand random(seed);
      while (Clock::now() < end) {
        const unsigned index = static_cast<unsigned>(random() % kKeys);
        const std::string key = nth_key(index);
        const Found found = store.find(digest_of(key), key);
        if (found.entry && !is_right(*found.entry, index)) return int{wrong_bytes};
        const std::string payload = payload_of(index);
        if (!store.publish(key, {}, std::as_bytes(std::span(payload))).ok())
          return int{failed_publish};
      }
      return int{all_right};
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), all_right);
  EXPECT_EQ(wait_for(vandal), 0);
}

TEST(StoreStress, AKilledWriterLeavesNothingBehind) {
  const TemporaryDirectory directory;
  const auto root = directory / "cache";
  std::minstd_rand random(3);
  for (int round = 0; round < 200; ++round) {
    const pid_t writer = start_child([&] {
      Store store = *Store::open({.directory = root});
      for (unsigned i = 0;; ++i) {
        const std::string payload = payload_of(i % kKeys);
        const std::string key =
            nth_key(i % kKeys) + '/' + std::to_string(static_cast<unsigned>(round) % 4 + i);
        static_cast<void>(store.publish(key, {}, std::as_bytes(std::span(payload))));
      }
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ::kill(writer, SIGKILL);
    wait_for(writer);
    if (round % 20 == 0) std::filesystem::remove_all(root / "v1/e");
  }
  EXPECT_TRUE(dot_names_below(root).empty());
  const auto verified = (*Store::open({.directory = root})).verify();
  ASSERT_TRUE(verified) << verified.error().message();
  for (const EntryInfo& info : *verified) EXPECT_EQ(info.damage, "");
}

TEST(StoreStress, OneOfManyMakesAnEntryWhileItHoldsTheLock) {
  const TemporaryDirectory directory;
  const auto root = directory / "cache";
  // Each process makes each key unless it is there; a byte in a log file counts the making.
  const auto log = directory / "made";
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i)
    children.push_back(start_child([&] {
      Store store = *Store::open({.directory = root});
      for (unsigned left = kKeys, index = 0; left > 0; index = (index + 1) % kKeys) {
        left = 0;
        for (unsigned k = 0; k < kKeys; ++k) {
          const std::string key = nth_key(k);
          if (store.find(digest_of(key), key).entry) continue;
          ++left;
          const LockAttempt attempt = store.try_lock(digest_of(key));
          if (attempt.outcome == LockOutcome::unavailable) return 1;
          if (attempt.outcome == LockOutcome::busy) continue;
          if (store.find(digest_of(key), key).entry) continue;
          std::this_thread::sleep_for(5ms);
          std::ofstream(log, std::ios::app) << 'x';
          if (!store.publish(key, {}, {}).ok()) return 2;
        }
        std::this_thread::sleep_for(1ms);
      }
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(test::read_file(log), std::string(kKeys, 'x'));
}

}  // namespace
}  // namespace kiln::cache
