// The progress of a warmup as one line that is redrawn in place, with the time that is left.
//
// Threads: update() from any thread, one call at a time; a thread of its own redraws the line, so
// that a long compile does not look like a stop. Lifetime: the line goes with the object.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/output.hpp"
#include "kiln/warmup.hpp"

namespace kiln::cli {

struct BarState {
  std::size_t done = 0;
  std::size_t requested = 0;
  std::size_t hits = 0;
  std::size_t compiled = 0;
  std::size_t failed = 0;
  std::string latest{};                  ///< the kernel that was done last
  std::vector<std::string> compiling{};  ///< now
  /// By what the kernels took before; empty where that is not known.
  std::optional<std::chrono::milliseconds> left{};
  std::chrono::milliseconds elapsed{};
};

/// The time until all is done, as it is told or else by what was done so far; empty before anything
/// is. Hits come at once, so what is left counts
/// as compiles when anything so far was one.
std::optional<std::chrono::milliseconds> time_left(const BarState& state);

/// The line for a terminal of `columns`, never longer than one column less (a full line would
/// wrap). What matters least is left out first.
std::string bar_line(const BarState& state, unsigned columns);

class ProgressBar {
 public:
  explicit ProgressBar(Output& output);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(const Progress& progress);

 private:
  void draw();

  Output& output_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  BarState state_;
  std::thread redraw_;  // only on a terminal
};

}  // namespace kiln::cli
