// Threads that Kiln makes take no signals: what is sent to the process is for threads of its own,
// one in sigwait(), or with a signalfd, or that a handler is to interrupt.
//
// Threads: for the thread that makes it, and while it lives.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace kiln::cache {

/// The threads that this one starts meanwhile take none but those of their own faults, by which
/// the process's crash handler learns of them, and a profiler's.
class WithoutSignals {
 public:
  WithoutSignals() noexcept {
    sigset_t most;
    ::sigfillset(&most);
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF})
      ::sigdelset(&most, number);
    ::pthread_sigmask(SIG_BLOCK, &most, &before_);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace kiln::cache
