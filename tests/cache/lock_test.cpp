#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::in_child;
using test::start_child;
using test::TemporaryDirectory;
using test::wait_for;
using namespace std::chrono_literals;

const Digest kName = digest_of("k=1");
const Digest kOther = digest_of("k=2");

Store open_store(const std::filesystem::path& directory) {
  return *Store::open({.directory = directory});
}

/// Tries for at most a second; true when the lock was had.
bool gets_lock(Store& store, const Digest& name) {
  const auto end = std::chrono::steady_clock::now() + 1s;
  do {
    if (store.try_lock(name).outcome == LockOutcome::held) return true;
    std::this_thread::sleep_for(1ms);
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// A pipe by which a child says that it got somewhere.
class Signal {
 public:
  Signal() {
    if (::pipe(ends_) != 0) std::abort();
  }
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void send() { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void wait() {
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

TEST(Lock, ExcludesThreadsStoresAndProcesses) {
  const TemporaryDirectory directory;
  Store store = open_store(directory / "cache");
  Store second = open_store(directory / "cache");
  LockAttempt first = store.try_lock(kName);
  ASSERT_EQ(first.outcome, LockOutcome::held);
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::busy);
  EXPECT_EQ(second.try_lock(kName).outcome, LockOutcome::busy);
  std::thread([&] { EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::busy); }).join();
  EXPECT_EQ(in_child([&] { return static_cast<int>(store.try_lock(kName).outcome); }),
            static_cast<int>(LockOutcome::busy));

  EXPECT_EQ(store.try_lock(kOther).outcome, LockOutcome::held) << "another key is free";
  first.lock.release();
  EXPECT_EQ(second.try_lock(kName).outcome, LockOutcome::held);
}

TEST(Lock, AllThatAreHeldAreCounted) {
  Fixture f;
  EXPECT_EQ(f.store.locked(9), 0u);
  std::vector<LockAttempt> held;
  for (int i = 0; i < 40; ++i) held.push_back(f.store.try_lock(digest_of(std::to_string(i))));
  EXPECT_EQ(f.reopened().locked(100), 40u);
  EXPECT_EQ(f.store.locked(9), 9u);
  held.erase(held.begin() + 3, held.end());
  EXPECT_EQ(f.store.locked(100), 3u);
}

TEST(Lock, MovesWithItsOwner) {
  const TemporaryDirectory directory;
  Store store = open_store(directory / "cache");
  KeyLock kept;
  {
    LockAttempt attempt = store.try_lock(kName);
    kept = std::move(attempt.lock);
  }
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::busy);
  kept = KeyLock();
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::held);
}

TEST(Lock, OutlivesItsStore) {
  const TemporaryDirectory directory;
  std::optional<Store> store = open_store(directory / "cache");
  LockAttempt attempt = store->try_lock(kName);
  store.reset();
  Store second = open_store(directory / "cache");
  EXPECT_EQ(second.try_lock(kName).outcome, LockOutcome::busy);
  attempt.lock.release();
  EXPECT_EQ(second.try_lock(kName).outcome, LockOutcome::held);
}

TEST(Lock, LetsOneThreadInAtATime) {
  const TemporaryDirectory directory;
  Store store = open_store(directory / "cache");
  std::atomic<int> inside = 0;
  std::atomic<int> entered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        const LockAttempt attempt = store.try_lock(kName);
        if (attempt.outcome != LockOutcome::held) continue;
        EXPECT_EQ(inside.fetch_add(1), 0);
        ++entered;
        std::this_thread::yield();
        inside.fetch_sub(1);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_GT(entered, 0);
}

TEST(Lock, IsFreeWhenItsHolderIsKilled) {
  const TemporaryDirectory directory;
  Store store = open_store(directory / "cache");
  Signal locked;
  const pid_t holder = start_child([&] {
    const LockAttempt attempt = store.try_lock(kName);
    locked.send();
    ::pause();
    return static_cast<int>(attempt.outcome);
  });
  locked.wait();
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::busy);
  ::kill(holder, SIGKILL);
  wait_for(holder);
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::held);
}

TEST(Lock, IsFreeWhenItsHolderIsKilledThoughAForkedChildLivesOn) {
  const TemporaryDirectory directory;
  Store store = open_store(directory / "cache");
  Signal forked;
  Signal end;
  const pid_t holder = start_child([&] {
    const LockAttempt attempt = store.try_lock(kName);
    start_child([&] {
      forked.send();
      end.wait();
      return 0;
    });
    ::pause();
    return static_cast<int>(attempt.outcome);
  });
  forked.wait();
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::busy);
  ::kill(holder, SIGKILL);
  wait_for(holder);
  EXPECT_TRUE(gets_lock(store, kName));
  end.send();
}

TEST(Lock, StaysWithTheParentWhateverAForkedChildDoes) {
  const TemporaryDirectory directory;
  Store store = open_store(directory / "cache");
  LockAttempt attempt = store.try_lock(kName);
  const auto release = [&] {
    attempt.lock.release();
    const bool still_held = store.try_lock(kName).outcome == LockOutcome::busy;
    const bool other_free = store.try_lock(kOther).outcome == LockOutcome::held;
    return still_held && other_free ? 0 : 1;
  };
  EXPECT_EQ(in_child(release), 0);
  EXPECT_EQ(in_child(release), 0);
  attempt.lock.release();
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::held);
}

TEST(Lock, ForkAmongLockingThreadsLeavesTheChildWorking) {
#ifdef KILN_EMULATED
  GTEST_SKIP() << "QEMU itself does not survive a fork beside other threads";
#endif
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer's allocator may be locked by another thread at the fork";
#endif
  const TemporaryDirectory directory;
  Store store = open_store(directory / "cache");
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      const Digest mine = digest_of("thread " + std::to_string(i));
      while (!stop) EXPECT_EQ(store.try_lock(mine).outcome, LockOutcome::held);
    });
  for (int round = 0; round < 50; ++round) {
    const int status = in_child([&] {
      ::alarm(20);  // a child that waits for a mutex dies of this
      if (store.try_lock(kName).outcome != LockOutcome::held) return 1;
      if (!store.publish("k=" + std::to_string(round), {}, {}).ok()) return 2;
      return store.find(digest_of("k=0"), "k=0").entry ? 0 : 3;
    });
    ASSERT_EQ(status, 0) << "round " << round;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST(Lock, KeepsWorkingWhenTheDirectoryIsDeletedUnderneath) {
  const TemporaryDirectory directory;
  const auto root = directory / "cache";
  Store store = open_store(root);
  LockAttempt old = store.try_lock(kName);
  ASSERT_EQ(old.outcome, LockOutcome::held);
  std::filesystem::remove(root / "v1" / "lock");
  // The old lock guards nothing any more; what counts is that new ones exclude one another.
  LockAttempt fresh = store.try_lock(kName);
  EXPECT_EQ(fresh.outcome, LockOutcome::held);
  old.lock.release();
  EXPECT_EQ(in_child([&] { return static_cast<int>(store.try_lock(kName).outcome); }),
            static_cast<int>(LockOutcome::busy));
  std::filesystem::remove_all(root);
  EXPECT_EQ(store.try_lock(kOther).outcome, LockOutcome::held);
}

std::string lock_to_delete;

TEST(Lock, IsTakenOnTheFileThatOthersWillOpen) {
  const TemporaryDirectory directory;
  SystemCalls calls = kRealCalls;
  calls.set_lock = [](int fd, const struct flock* lock) {
    std::filesystem::remove(std::exchange(lock_to_delete, "/nowhere"));
    return kRealCalls.set_lock(fd, lock);
  };
  const std::filesystem::path root = directory / "cache";
  Store store = *StoreWithCalls::open({.directory = root}, calls);
  lock_to_delete = (root / "v1/lock").string();
  const LockAttempt attempt = store.try_lock(kName);
  ASSERT_EQ(attempt.outcome, LockOutcome::held);
  EXPECT_EQ(open_store(root).try_lock(kName).outcome, LockOutcome::busy);
}

// A table of calls that fails to lock with `lock_error`.
int lock_error = 0;
SystemCalls calls_without_locks(int error) {
  lock_error = error;
  SystemCalls calls = kRealCalls;
  calls.set_lock = [](int, const struct flock*) {
    errno = lock_error;
    return -1;
  };
  return calls;
}

TEST(Lock, IsUnavailableWithOneWarningWhereTheFileSystemHasNone) {
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL}) {
    const TemporaryDirectory directory;
    int warnings = 0;
    const SystemCalls calls = calls_without_locks(error);
    Store store = *StoreWithCalls::open(
        {.directory = directory.path(), .log = [&](LogLevel, std::string_view) { ++warnings; }},
        calls);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::unavailable);
    EXPECT_EQ(warnings, 1);
  }
}

TEST(Lock, IsUnavailableWhereTheLockFileCannotBe) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "v1/lock");
  std::string text;
  Store store = *Store::open({.directory = directory.path(),
                              .log = [&](LogLevel, std::string_view line) { text += line; }});
  EXPECT_EQ(store.try_lock(kName).outcome, LockOutcome::unavailable);
  EXPECT_NE(text.find(directory.path().string()), std::string::npos) << text;
  EXPECT_NE(text.find("KILN_CACHE_DIR"), std::string::npos) << text;
}

}  // namespace
}  // namespace kiln::cache
