#include "runtime/process_guard.hpp"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime/fork_generation.hpp"
#include "runtime/fork_mutex.hpp"

namespace kiln {
namespace {

constinit ForkMutex mutex;
unsigned users = 0;
rlimit limit_before{};

constexpr std::chrono::seconds kLongestExit{5};
constexpr std::chrono::milliseconds kExitPoll{1};
std::atomic<bool> ending{false};

void end_compiles() {
  ending.store(true);
  // Not for a compile of this thread, on which a signal may have come.
  const auto until = std::chrono::steady_clock::now() + kLongestExit;
  while (InCompiler::others() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kExitPoll);
}

}  // namespace

SignalActions::SignalActions() noexcept {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &actions_[i]);
}

void SignalActions::put_back() const noexcept {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &actions_[i], nullptr);
}

StackLimit::StackLimit() noexcept {
  const std::lock_guard lock(mutex);
  if (users++ == 0) ::getrlimit(RLIMIT_STACK, &limit_before);
}

StackLimit::~StackLimit() {
  const std::lock_guard lock(mutex);
  rlimit now{};
  if (--users == 0 && ::getrlimit(RLIMIT_STACK, &now) == 0 && now.rlim_cur != limit_before.rlim_cur)
    ::setrlimit(RLIMIT_STACK, &limit_before);
}

void end_compiles_at_exit() noexcept {
  static_cast<void>(std::atexit(end_compiles));
}

bool process_is_ending() noexcept {
  return ending.load();
}

}  // namespace kiln
