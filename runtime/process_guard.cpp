#include "runtime/process_guard.hpp"

#include <sys/resource.h>

#include <mutex>

#include "runtime/fork_mutex.hpp"

namespace kiln {
namespace {

constinit ForkMutex mutex;
unsigned users = 0;
rlimit limit_before{};

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

}  // namespace kiln
