// Threads that a Runtime owns: they may outlive the call that started them, never the Runtime.
//
// Threads: any member from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/fork_mutex.hpp"

namespace kiln {

class BackgroundThreads {
 public:
  BackgroundThreads() = default;
  BackgroundThreads(const BackgroundThreads&) = delete;
  BackgroundThreads& operator=(const BackgroundThreads&) = delete;
  /// Tells work to stop by stopping(), and waits for it.
  ~BackgroundThreads();

  /// False when no more threads can be made.
  bool start(std::function<void()> work);
  /// Asked by the work, so that the end of a Runtime does not take as long as a compile.
  bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }

 private:
  struct Running {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  /// In a forked child there are no such threads: what stands for them is left as it is, since
  /// neither joining nor destroying it means anything there.
  static void leave(std::vector<Running> threads) noexcept;
  void join_finished();  // with the mutex held

  std::atomic<bool> stopping_{false};
  ForkMutex mutex_;
  std::vector<Running> running_;
  unsigned generation_ = 0;  // fork_generation() of the process that the threads are in
};

}  // namespace kiln
