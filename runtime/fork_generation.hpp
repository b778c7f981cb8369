// What a forked process has lost: the driver, which does not survive a fork and says so late and
// unclearly, and NVRTC where a thread was inside it.
//
// Threads: any.
#pragma once

#include <atomic>

#include "kiln/error.hpp"

namespace kiln {

namespace detail {
extern std::atomic<unsigned> fork_count;
extern std::atomic<unsigned> threads_in_compiler;
extern constinit thread_local unsigned here_in_compiler;
extern std::atomic<bool> compiler_lost;
extern std::atomic<unsigned> lost_generation;
}  // namespace detail

/// Starts counting forks; the first call registers a handler for the life of the process.
void watch_forks() noexcept;

/// How many forks lie between this process and the one that called watch_forks().
inline unsigned fork_generation() noexcept {
  return detail::fork_count.load(std::memory_order_relaxed);
}

/// What CUDA is answered with in a process that was forked after it was initialised: no_device.
Error forked_error();

/// Marks that this thread is inside NVRTC, as long as it lives.
class InCompiler {
 public:
  InCompiler() noexcept {
    detail::threads_in_compiler.fetch_add(1);
    ++detail::here_in_compiler;
  }
  InCompiler(const InCompiler&) = delete;
  InCompiler& operator=(const InCompiler&) = delete;
  ~InCompiler() {
    --detail::here_in_compiler;
    detail::threads_in_compiler.fetch_sub(1);
  }

  /// Whether a thread beside the calling one is.
  static bool others() noexcept {
    return detail::threads_in_compiler.load() > detail::here_in_compiler;
  }
};

/// Whether this process was forked while a thread of its parent was inside NVRTC: its locks are
/// then held for ever, and calling it would hang.
inline bool compiler_lost_in_fork() noexcept {
  return detail::compiler_lost.load(std::memory_order_relaxed);
}

/// Where a forked child finds that it does hang.
inline void lose_compiler() noexcept {
  detail::compiler_lost.store(true);
}

/// Whether what was made in `generation`, and its locks, may be as a thread that is not here left
/// them in the middle of its work; see fork_mutex.hpp.
inline bool lost_in_fork(unsigned generation) noexcept {
  return generation < detail::lost_generation.load(std::memory_order_relaxed);
}

}  // namespace kiln
