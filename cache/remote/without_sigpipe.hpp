// Keeps SIGPIPE from the calling thread, since a library that writes to a connection which the
// server closed would otherwise end the process.
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

}  // namespace kiln::cache
