#include "runtime/fork_generation.hpp"

#include <pthread.h>

namespace kiln {

namespace detail {
// The only process-wide state of the runtime: pthread_atfork knows no objects.
std::atomic<unsigned> fork_count{0};
std::atomic<unsigned> threads_in_compiler{0};
std::atomic<bool> compiler_lost{false};
}  // namespace detail

void watch_forks() noexcept {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    detail::fork_count.fetch_add(1, std::memory_order_relaxed);
    // Those threads are not here.
    if (detail::threads_in_compiler.exchange(0) != 0) detail::compiler_lost.store(true);
  });
  static_cast<void>(registered);
}

}  // namespace kiln
