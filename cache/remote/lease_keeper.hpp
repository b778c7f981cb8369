// Renews the leases that this process holds, and gives them up when they are let go of; both on a
// thread of its own, so that nobody waits for it.
//
// Threads: any member from any thread. Lifetime: whoever holds a lease keeps it alive.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/remote/servers.hpp"

namespace kiln::cache {

class LeaseKeeper : public std::enable_shared_from_this<LeaseKeeper> {
 public:
  explicit LeaseKeeper(std::shared_ptr<Servers> servers) : servers_(std::move(servers)) {}
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;
  ~LeaseKeeper() { stop(); }

  /// Keeps the lease of `name`, which `token` has just taken, until what is returned is gone.
  std::shared_ptr<void> keep(const std::string& name, const std::string& token);
  /// Gives up what is still to be given up, without waiting for a server that fails, and ends the
  /// thread. Leases that are let go of later end by themselves.
  void stop();

 private:
  struct Ended {
    std::string name;
    std::string token;
  };
  void let_go(const std::string& token);
  void work();

  const std::shared_ptr<Servers> servers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> held_;  // names by token
  std::vector<Ended> ended_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kiln::cache
