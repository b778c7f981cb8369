// Compiles with exceptions: std::thread reports by one that no more threads can be made.
#include "runtime/background_threads.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "cache/without_signals.hpp"
#include "runtime/fork_generation.hpp"

namespace kiln {

BackgroundThreads::~BackgroundThreads() {
  stopping_.store(true, std::memory_order_relaxed);
  if (running_.empty()) return;
  if (generation_ != fork_generation()) {
    leave(std::move(running_));
    return;
  }
  for (auto& running : running_) running.thread.join();
}

void BackgroundThreads::leave(std::vector<Running> threads) noexcept {
  union Left {
    explicit Left(std::vector<Running>&& from) noexcept : vector(std::move(from)) {}
    ~Left() {}  // and not that of the vector
    std::vector<Running> vector;
  };
  const Left left(std::move(threads));
}

void BackgroundThreads::join_finished() {
  const auto finished = std::partition(running_.begin(), running_.end(),
                                       [](const auto& running) { return !running.done->load(); });
  for (auto running = finished; running != running_.end(); ++running) running->thread.join();
  running_.erase(finished, running_.end());
}

bool BackgroundThreads::start(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (generation_ != fork_generation() && !running_.empty()) leave(std::exchange(running_, {}));
  generation_ = fork_generation();
  join_finished();
  auto done = std::make_shared<std::atomic<bool>>(false);
  const cache::WithoutSignals none;
  try {
    std::thread thread([work = std::move(work), done] {
      work();
      done->store(true);
    });
    running_.push_back({std::move(thread), done});
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace kiln
