// Keeps signals from threads: SIGPIPE from the calling one, since a library that writes to a
// connection which the server closed would otherwise end the process; those for the process from
// threads of ours.
//
// Threads: for the thread that makes it, and while it lives.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace kiln::cache {

class WithoutSigpipe {
 public:
  WithoutSigpipe() noexcept {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigemptyset(&pending);
    ::sigpending(&pending);
    pending_before_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    // One that we caused goes away with us; one that was there before is not ours.
    if (!pending_before_) {
      const timespec at_once{};
      while (::sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) continue;
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool pending_before_ = false;
};

/// The threads that this one starts meanwhile take no signals but those of their own faults and a
/// profiler's; as the class of this name in runtime/.
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
