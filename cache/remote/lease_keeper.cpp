#include "cache/remote/lease_keeper.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/remote/random.hpp"

namespace kiln::cache {
namespace {

constexpr std::chrono::milliseconds kFirstPause{100};

}  // namespace

std::shared_ptr<void> LeaseKeeper::keep(const std::string& name, const std::string& token) {
  {
    const std::lock_guard lock(mutex_);
    held_.emplace(token, name);
    if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_one();
  // It owns nothing: what matters is that it goes.
  return {static_cast<void*>(this), [self = weak_from_this(), token](void*) {
            if (const auto keeper = self.lock()) keeper->let_go(token);
          }};
}

void LeaseKeeper::let_go(const std::string& token) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(token);
    if (found == held_.end()) return;  // it was lost
    ended_.push_back({found->second, token});
    held_.erase(found);
  }
  changed_.notify_one();
}

void LeaseKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LeaseKeeper::work() {
  const auto interval = servers_->options().times.lease / 3;
  auto next = std::chrono::steady_clock::now() + interval;
  std::chrono::steady_clock::duration pause{};  // between tries of a server that fails
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_until(lock, next, [&] { return stopping_ || !ended_.empty(); });
    for (auto ended = std::exchange(ended_, {}); const auto& [name, token] : ended) {
      lock.unlock();
      // One that cannot be given up ends by itself.
      static_cast<void>(servers_->release_lease(name, token));
      lock.lock();
    }
    if (stopping_ && ended_.empty()) return;
    if (std::chrono::steady_clock::now() < next) continue;
    bool failed = false;
    for (const auto held = held_; const auto& [token, name] : held) {
      lock.unlock();
      const Answer answer = servers_->renew_lease(name, token);
      lock.lock();
      failed |= answer.failure != RemoteFailure::none;
      // Another has it now: there is nothing left to renew or give up.
      if (answer.failure == RemoteFailure::none && !answer.yes) held_.erase(token);
    }
    // One that comes back without its memory is to know of these before others take them.
    pause = failed
                ? std::clamp<std::chrono::steady_clock::duration>(2 * pause, kFirstPause, interval)
                : interval;
    next = std::chrono::steady_clock::now() + (failed ? jittered(pause, 0.5, 1) : pause);
    if (!failed) pause = {};
  }
}

}  // namespace kiln::cache
