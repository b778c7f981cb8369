#include "runtime/fork_generation.hpp"

#include <pthread.h>

#include "runtime/fork_mutex.hpp"

namespace kiln {

namespace detail {
// Process-wide, because pthread_atfork knows no objects.
std::atomic<unsigned> fork_count{0};
std::atomic<unsigned> threads_in_compiler{0};
constinit thread_local unsigned here_in_compiler = 0;
std::atomic<bool> compiler_lost{false};
std::atomic<unsigned> lost_generation{0};
}  // namespace detail

void watch_forks() noexcept {
  static const int registered =
      pthread_atfork(detail::before_fork, detail::after_fork_in_parent, [] {
        const auto generation = detail::fork_count.fetch_add(1, std::memory_order_relaxed) + 1;
        // The other threads are not here.
        const auto here = detail::here_in_compiler;
        if (detail::threads_in_compiler.exchange(here) != here) detail::compiler_lost.store(true);
        if (detail::after_fork_in_child()) detail::lost_generation.store(generation);
      });
  static_cast<void>(registered);
}

Error forked_error() {
  return Error(ErrorCode::no_device,
               "this process was forked after CUDA was initialised, so its CUDA cannot be used: "
               "fork before the first use of CUDA, or start a new process");
}

}  // namespace kiln
