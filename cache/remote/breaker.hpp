// Leaves a server alone that fails, or takes its time and has nothing: a dead one costs its
// deadline once in a while, and nothing in between. Its clock is the caller's.
//
// Threads: any.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>

#include "kiln/cache/remote.hpp"

namespace kiln::cache {

class Breaker {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  explicit Breaker(const RemoteTimes& times) : times_(times) {}

  /// Whether to ask the server now. After a break the first caller is sent ahead and the others
  /// are not; whoever was let through says how it went.
  bool admits(Time now);
  void served(Time now);
  /// It answered, and that says nothing of what others will ask it.
  void answered();
  /// It answered without an object after `took`, in which much could have been compiled. What such
  /// answers and failures take is added up: more than `first_byte` of it in `longest_break` begins
  /// a break. True when this does.
  bool lagged(Time now, Clock::duration took);
  /// A request that took `took` failed, by which the server asks to be left alone for `asked`. A
  /// break lasts at least as long as either, so that no server costs more than half of the time.
  /// True when this begins a break.
  bool failed(Time now, RemoteFailure failure, Clock::duration took = {},
              Clock::duration asked = {});

  /// Whether the server has come back from a break so lately that those who had a lease of it may
  /// not have taken it anew.
  bool is_just_back(Time now) const;
  /// Whether the server has served, and so lately that it may well come back in a moment.
  bool is_waited_for(Time now) const;

 private:
  // With the mutex held.
  bool is_spent(Time now, Clock::duration took);
  bool begin_break(Time now, Clock::duration took, Clock::duration asked);

  const RemoteTimes times_;
  mutable std::mutex mutex_;
  int failures_ = 0;  // in a row
  Clock::duration break_{};
  std::optional<Time> closed_until_{};
  bool sent_ahead_ = false;
  Clock::duration spent_{};  // until the time below, for nothing
  Time spent_until_{};
  std::optional<Time> waited_until_{};
  std::optional<Time> back_until_{};
};

}  // namespace kiln::cache
