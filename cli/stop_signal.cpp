#include "cli/stop_signal.hpp"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <system_error>

namespace kiln::cli {
namespace {

// Between looks at whether it is over.
constexpr timespec kTick{.tv_sec = 0, .tv_nsec = 50'000'000};
// From the first signal to the end, of the two seconds that it may take.
constexpr std::chrono::milliseconds kLongestEnd{1700};

}  // namespace

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  // Threads that are made from now on inherit it, so that only the waiter gets them.
  ::pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  try {
    waiter_ = std::thread([this] { wait(); });
  } catch (const std::system_error&) {
    // No thread can be made: the signals end this process at once, as they end any other.
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
}

void StopSignal::wait() {
  using Clock = std::chrono::steady_clock;
  int first = 0;
  Clock::time_point longest;
  while (!end_.stop_requested()) {
    const int number = ::sigtimedwait(&signals_, nullptr, &kTick);
    if (number > 0 && first != 0) ::_exit(128 + number);
    // The verb hangs, as in a write to a pipe whose reader does not read.
    if (first != 0 && Clock::now() > longest) ::_exit(128 + first);
    if (number <= 0) continue;
    first = number;
    longest = Clock::now() + kLongestEnd;
    source_.request_stop();
  }
}

StopSignal::~StopSignal() {
  if (!waiter_.joinable()) return;
  end_.request_stop();
  waiter_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace kiln::cli
