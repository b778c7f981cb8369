// Tells a process that was forked from the one that initialised CUDA: the driver does not survive a
// fork, and says so late and unclearly.
//
// Threads: any.
#pragma once

#include <atomic>

namespace kiln {

namespace detail {
extern std::atomic<unsigned> fork_count;
}

/// Starts counting forks; the first call registers a handler for the life of the process.
void watch_forks() noexcept;

/// How many forks lie between this process and the one that called watch_forks().
inline unsigned fork_generation() noexcept {
  return detail::fork_count.load(std::memory_order_relaxed);
}

}  // namespace kiln
