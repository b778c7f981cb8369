#include "runtime/fork_generation.hpp"

#include <pthread.h>

namespace kiln {

namespace detail {
// The one piece of process-wide state in the library: pthread_atfork knows no objects.
std::atomic<unsigned> fork_count{0};
}  // namespace detail

void watch_forks() noexcept {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { detail::fork_count.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
}

}  // namespace kiln
