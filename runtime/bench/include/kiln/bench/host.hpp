// Host timing of the same quality as device timing: the time that calls take on the host's
// monotonic clock, in paired rounds. Pin the process to one processor: where it is not, the figures
// say more about the scheduler.
//
// Threads: one at a time.
#pragma once

#include <functional>
#include <string>

#include "kiln/bench/compare.hpp"

namespace kiln::bench {

struct HostArm {
  std::string name{};
  /// Makes the call `calls` times. The loop is the arm's own, so that nothing comes between.
  std::function<Status(unsigned calls)> run{};
  /// Says what is wrong with what the calls did; null: nothing to check.
  std::function<Status()> check{};
};

struct HostTiming {
  unsigned calls = 200;  ///< of a sample
  /// Runs before each sample outside of the timed interval, such as waiting for a stream to drain.
  std::function<Status()> settle{};
  /// Nanoseconds that only go up; null: the monotonic clock. Tests put in their own.
  std::function<std::int64_t()> now{};
};

/// Compares as compare() does; the arms' names become those of the comparison.
/// Errors  as compare(); invalid_argument for 0 calls or an arm that does nothing.
Result<Comparison> compare_host(const HostArm& baseline, const HostArm& candidate,
                                const HostTiming& timing, const CompareOptions& options);

}  // namespace kiln::bench
