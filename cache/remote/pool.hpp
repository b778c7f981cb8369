// Connections that are kept: whoever has a request takes one, and gives it back if it is still
// good. One that nobody used for a while is not kept: what lies between may have forgotten it, and
// lets a request of ours wait for its deadline. Its clock is the caller's.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace kiln::cache {

template <class Connection>
class Pool {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The one that was used last, so that few stay open; null when none is free.
  std::unique_ptr<Connection> take(Time now) {
    const std::lock_guard lock(mutex_);
    std::erase_if(free_, [&](const Free& free) { return now - free.since > kLongestIdle; });
    if (free_.empty()) return nullptr;
    auto connection = std::move(free_.back().connection);
    free_.pop_back();
    return connection;
  }
  void give(std::unique_ptr<Connection> connection, Time now) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMostFree) free_.push_back({std::move(connection), now});
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    free_.clear();
  }

 private:
  struct Free {
    std::unique_ptr<Connection> connection;
    Time since;
  };
  static constexpr std::size_t kMostFree = 16;
  static constexpr std::chrono::seconds kLongestIdle{30};
  std::mutex mutex_;
  std::vector<Free> free_;
};

}  // namespace kiln::cache
