#include "runtime/fork_mutex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace kiln {
namespace {

using std::chrono::steady_clock;

// How long a fork waits for those inside.
constexpr std::chrono::milliseconds kLongestWait{1000};
constexpr timespec kTick{.tv_sec = 0, .tv_nsec = 50'000};

// A thread counts itself before it looks for forks, and a fork announces itself before it looks at
// the count, both in one order for all: one of the two sees the other.
std::atomic<unsigned> inside{0};
std::atomic<unsigned> forks{0};  // that are under way
constinit thread_local unsigned depth = 0;
constinit thread_local bool gave_up = false;

unsigned own_share() noexcept {
  return depth != 0 ? 1 : 0;
}

std::uint32_t* word_of(std::atomic<std::uint32_t>& number) noexcept {
  static_assert(sizeof number == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&number);
}

}  // namespace

namespace detail {

void enter_lock() noexcept {
  if (depth++ != 0) return;
  for (;;) {
    inside.fetch_add(1);
    if (forks.load() == 0) return;
    inside.fetch_sub(1);
    while (forks.load() != 0) ::nanosleep(&kTick, nullptr);
  }
}

void leave_lock() noexcept {
  if (--depth == 0) inside.fetch_sub(1);
}

void before_fork() noexcept {
  forks.fetch_add(1);
  gave_up = false;
  const auto until = steady_clock::now() + kLongestWait;
  while (inside.load() > own_share() && !gave_up) {
    ::nanosleep(&kTick, nullptr);
    gave_up = steady_clock::now() > until;
  }
}

void after_fork_in_parent() noexcept {
  forks.fetch_sub(1);
}

bool after_fork_in_child() noexcept {
  forks.store(0);
  inside.store(own_share());
  return gave_up;
}

}  // namespace detail

void ForkCondition::notify_all() noexcept {
  changes_.fetch_add(1);
  if (waiting_.load() != 0)
    ::syscall(SYS_futex, word_of(changes_), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void ForkCondition::wait(std::unique_lock<ForkMutex>& lock, std::chrono::nanoseconds longest) {
  constexpr long kSecond = 1'000'000'000;
  const timespec time{.tv_sec = longest.count() / kSecond, .tv_nsec = longest.count() % kSecond};
  // Before the mutex is free: what changes from here on changes the number too.
  const auto seen = changes_.load();
  waiting_.fetch_add(1);
  lock.unlock();
  ::syscall(SYS_futex, word_of(changes_), FUTEX_WAIT_PRIVATE, seen, &time, nullptr, 0);
  lock.lock();
  waiting_.fetch_sub(1);
}

}  // namespace kiln
