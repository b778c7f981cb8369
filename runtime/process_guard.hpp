// What NVRTC changes for the whole process, and puts back in part at most.
//
// Threads: see each.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>

namespace kiln {

/// NVRTC's front end takes SIGINT and SIGTERM for itself during its first compile in a process, as
/// a program of its own would: one that comes then ends the process, whatever handler it has. After
/// that they go to the handlers from before, without their flags.
/// Threads: one, as long as no other sets such a handler.
class SignalActions {
 public:
  /// Those of now.
  SignalActions() noexcept;
  void put_back() const noexcept;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGXFSZ};
  std::array<struct sigaction, kSignals.size()> actions_{};
};

/// A compile takes the limit on stacks away, and one that fails leaves it so, for this process and
/// those that it starts. While objects of this live the limit is as NVRTC will have it; after the
/// last it is as before the first.
/// Threads: any.
class StackLimit {
 public:
  StackLimit() noexcept;
  StackLimit(const StackLimit&) = delete;
  StackLimit& operator=(const StackLimit&) = delete;
  ~StackLimit();
};

/// exit() takes NVRTC's data away under the compiles of other threads, as of a Runtime that is a
/// static object, and they crash. From the call of this on it first asks them to end, and waits for
/// them some seconds. For each time that NVRTC may have made data: what it makes later goes before.
/// Threads: any.
void end_compiles_at_exit() noexcept;

/// Whether exit() was called, so that no compile may begin or go on.
/// Threads: any.
bool process_is_ending() noexcept;

}  // namespace kiln
