#include "cache/remote/lease_keeper.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "cache/capped.hpp"
#include "cache/remote/random.hpp"
#include "cache/remote/start_thread.hpp"

namespace kiln::cache {
namespace {

constexpr std::chrono::milliseconds kFirstRetry{100};

}  // namespace

std::shared_ptr<void> LeaseKeeper::keep(const std::string& name, const std::string& token) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable() && (stopping_ || !start_thread(thread_, [this] { work(); })))
      return nullptr;
    held_[token] = {name, Clock::now() + capped(servers_->options().times.longest_lease_wait)};
  }
  changed_.notify_one();
  // It owns nothing: what matters is that it goes. In a forked child it is the parent's.
  return {static_cast<void*>(this), [self = weak_from_this(), token, process = ::getpid()](void*) {
            if (::getpid() != process) return;
            if (const auto keeper = self.lock()) keeper->let_go(token);
          }};
}

void LeaseKeeper::let_go(const std::string& token) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(token);
    if (found == held_.end()) return;  // it was lost
    ended_.push_back({std::move(found->second.name), token});
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

void LeaseKeeper::release_one(std::unique_lock<std::mutex>& lock) {
  const Ended ended = std::move(ended_.front());
  ended_.pop_front();
  lock.unlock();
  const Answer answer = servers_->release_lease(ended.name, ended.token);
  lock.lock();
  // Those that cannot be given up end by themselves; each try may cost a deadline.
  if (answer.failure != RemoteFailure::none) ended_.clear();
}

bool LeaseKeeper::renew_all(std::unique_lock<std::mutex>& lock) {
  bool failed = false;
  const auto now = Clock::now();
  for (const auto held = held_; const auto& [token, lease] : held) {
    if (stopping_) break;
    // The others wait no longer either: a compile that hangs does not hold them for ever.
    if (now >= lease.until) {
      held_.erase(token);
      continue;
    }
    lock.unlock();
    const Answer answer = servers_->renew_lease(lease.name, token);
    lock.lock();
    failed |= answer.failure != RemoteFailure::none;
    // Another has it now: there is nothing left to renew or give up.
    if (answer.failure == RemoteFailure::none && !answer.yes) held_.erase(token);
    if (is_for_all(answer.failure)) break;
  }
  return !failed;
}

void LeaseKeeper::work() {
  const auto interval = servers_->options().times.lease / 3;
  auto next = Clock::now() + interval;
  Clock::duration pause{};  // between tries of a server that fails
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_until(lock, next, [&] { return stopping_ || !ended_.empty(); });
    // One at a time, so that those that are held do not end meanwhile.
    if (!ended_.empty()) release_one(lock);
    if (stopping_ && ended_.empty()) return;
    if (stopping_ || Clock::now() < next) continue;
    const bool failed = !renew_all(lock);
    // One that comes back without its memory is to know of these before others take them.
    pause = failed ? std::clamp<Clock::duration>(2 * pause, kFirstRetry, interval) : interval;
    next = Clock::now() + (failed ? jittered(pause, 0.5, 1) : pause);
    if (!failed) pause = {};
  }
}

}  // namespace kiln::cache
