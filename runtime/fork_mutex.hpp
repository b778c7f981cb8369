// Locks that a forked child finds free, and what they guard whole.
//
// fork() copies a locked mutex and not the thread that would unlock it. So it waits until no other
// thread is inside one of these, and keeps them all out until it is over. Who forks while inside is
// still there in the child. What others hold for long (a driver that starts, a disk that hangs) is
// not waited for without end: lost_in_fork() then tells the child.
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

namespace kiln {

namespace detail {
/// Around all that happens inside; they nest.
void enter_lock() noexcept;
void leave_lock() noexcept;

void before_fork() noexcept;
void after_fork_in_parent() noexcept;
/// True when some thread of the parent was still inside.
bool after_fork_in_child() noexcept;
}  // namespace detail

/// A standard mutex that a forked child finds free.
template <class Mutex>
class ForkSafe {
 public:
  constexpr ForkSafe() = default;
  ForkSafe(const ForkSafe&) = delete;

  void lock() {
    detail::enter_lock();
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    detail::leave_lock();
  }
  void lock_shared() {
    detail::enter_lock();
    mutex_.lock_shared();
  }
  void unlock_shared() {
    mutex_.unlock_shared();
    detail::leave_lock();
  }

 private:
  Mutex mutex_;
};

using ForkMutex = ForkSafe<std::mutex>;
using SharedForkMutex = ForkSafe<std::shared_mutex>;

/// A condition to wait for with a ForkMutex. Unlike the standard one it holds nothing of those who
/// wait, whom a child does not have: it can be used and destroyed there.
class ForkCondition {
 public:
  void notify_all() noexcept;

  /// Until the next notify_all(), or earlier.
  template <class Duration>
  void wait_for(std::unique_lock<ForkMutex>& lock, Duration longest) {
    wait(lock, std::chrono::duration_cast<std::chrono::nanoseconds>(longest));
  }
  template <class Duration, class Predicate>
  bool wait_for(std::unique_lock<ForkMutex>& lock, Duration longest, Predicate done) {
    const auto until = std::chrono::steady_clock::now() + longest;
    while (!done()) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left.count() <= 0) return false;
      wait_for(lock, left);
    }
    return true;
  }

 private:
  void wait(std::unique_lock<ForkMutex>& lock, std::chrono::nanoseconds longest);

  std::atomic<std::uint32_t> changes_{0};
  std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace kiln
