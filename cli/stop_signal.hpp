// SIGINT and SIGTERM as a request to stop, for a verb that has something to bring to an end.
//
// Threads: made and destroyed by the main thread, before and after all others.
#pragma once

#include <csignal>
#include <stop_token>
#include <string>
#include <thread>

namespace kiln::cli {

/// While it lives the two signals end nothing; the first one requests a stop. A second one ends the
/// process at once, and so does time: a verb that is stopped has less than two seconds to end.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  std::stop_token token() const noexcept { return source_.get_token(); }

 private:
  void wait();

  sigset_t signals_{};
  sigset_t before_{};
  std::stop_source source_;
  std::stop_source end_;
  std::thread waiter_;
};

}  // namespace kiln::cli
