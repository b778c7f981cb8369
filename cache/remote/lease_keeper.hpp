// Renews the leases that this process holds, and gives them up when they are let go of; both on a
// thread of its own, so that nobody waits for it.
//
// Threads: any member from any thread. Lifetime: whoever holds a lease keeps it alive.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "cache/remote/servers.hpp"

namespace kiln::cache {

class LeaseKeeper : public std::enable_shared_from_this<LeaseKeeper> {
 public:
  explicit LeaseKeeper(std::shared_ptr<Servers> servers) : servers_(std::move(servers)) {}
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;
  ~LeaseKeeper() { stop(); }

  /// Keeps the lease of `name`, which `token` has just taken, until what is returned is gone, and
  /// no longer than others wait for it. Null where no thread can be made for it: it ends by itself.
  std::shared_ptr<void> keep(const std::string& name, const std::string& token);
  /// Gives up what is still to be given up, without waiting for a server that fails, and ends the
  /// thread. Leases that are let go of later end by themselves.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Ended {
    std::string name;
    std::string token;
  };
  struct Held {
    std::string name;
    Clock::time_point until{};
  };
  void let_go(const std::string& token);
  void work();
  /// Gives one of `ended_` up.
  void release_one(std::unique_lock<std::mutex>& lock);
  /// False when some could not be renewed.
  bool renew_all(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<Servers> servers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Held> held_;  // by token
  std::deque<Ended> ended_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kiln::cache
