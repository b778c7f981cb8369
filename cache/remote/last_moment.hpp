// When all requests of a store that ends are given up, whatever their own deadlines.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace kiln::cache {

/// Never, until it is set.
class LastMoment {
 public:
  using Clock = std::chrono::steady_clock;

  void set(Clock::time_point when) noexcept { when_.store(when.time_since_epoch().count()); }
  /// The earlier one of it and `deadline`.
  Clock::time_point or_earlier(Clock::time_point deadline) const noexcept {
    return std::min(deadline, Clock::time_point(Clock::duration(when_.load())));
  }
  /// Who waits looks at it so often.
  static constexpr std::chrono::milliseconds kLongestNap{100};

 private:
  std::atomic<Clock::rep> when_{Clock::time_point::max().time_since_epoch().count()};
};

}  // namespace kiln::cache
