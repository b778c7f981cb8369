// Connections that are kept: whoever has a request takes one, and gives it back if it is still
// good.
//
// Threads: any.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace kiln::cache {

template <class Connection>
class Pool {
 public:
  /// The one that was used last, so that few stay open; null when none is free.
  std::unique_ptr<Connection> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    auto connection = std::move(free_.back());
    free_.pop_back();
    return connection;
  }
  void give(std::unique_ptr<Connection> connection) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMostFree) free_.push_back(std::move(connection));
  }

 private:
  static constexpr std::size_t kMostFree = 16;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> free_;
};

}  // namespace kiln::cache
