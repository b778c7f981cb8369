#include "cli/stop_signal.hpp"

#include <unistd.h>

#include <ctime>

namespace kiln::cli {
namespace {

// Between looks at whether it is over.
constexpr timespec kTick{.tv_sec = 0, .tv_nsec = 50'000'000};

}  // namespace

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  // Threads that are made from now on inherit it, so that only the waiter gets them.
  ::pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  waiter_ = std::thread([this] { wait(); });
}

void StopSignal::wait() {
  while (!end_.stop_requested()) {
    const int number = ::sigtimedwait(&signals_, nullptr, &kTick);
    if (number <= 0) continue;
    if (source_.stop_requested()) ::_exit(128 + number);
    source_.request_stop();
  }
}

StopSignal::~StopSignal() {
  end_.request_stop();
  waiter_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace kiln::cli
