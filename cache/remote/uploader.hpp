// Sends entries to the servers when there is time: signs, compresses, sends, tries again, and gives
// the lease up when it has arrived or could not be sent at once. What does not fit into the queue
// is dropped.
//
// Threads: any member from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cache/remote/servers.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

class Uploader {
 public:
  using Clock = std::chrono::steady_clock;

  struct Job {
    std::string name{};  // on the wire
    std::string key_text{};
    std::string facts{};
    std::vector<std::byte> payload{};
    FleetLease lease{};

    // Filled in by the uploader.
    std::vector<std::byte> object{};
    Clock::time_point first_try{};
    Clock::time_point not_before{};
    bool stored = false;  // by the server of objects
    std::size_t bytes() const noexcept {
      return key_text.size() + facts.size() + payload.size() + object.size();
    }
  };

  explicit Uploader(std::shared_ptr<Servers> servers) : servers_(std::move(servers)) {}
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  /// Ends after the request that is under way; what waits is dropped.
  ~Uploader();

  /// False when it is dropped: there is no room in the queue, for as long as one upload may be
  /// tried where `waits_for_room`, or no thread can be made.
  bool add(Job job, bool waits_for_room);
  /// Waits until nothing is left. Errors  io_failed, with what is left, when that takes longer, is
  /// stopped, or an upload since the last flush came to nothing.
  Status flush(std::chrono::milliseconds longest, const std::stop_token& stop);

  std::uint64_t uploaded() const noexcept { return uploaded_.load(); }
  std::uint64_t dropped() const noexcept { return dropped_.load(); }
  std::uint64_t failed() const noexcept { return failed_.load(); }

 private:
  enum class Step : unsigned char {
    done,
    again,
    failed,   ///< whatever becomes of others
    gave_up,  ///< it failed for too long
  };
  void work();
  Step advance(Job& job, std::chrono::seconds& retry_after);
  bool is_late(const Job& job, Clock::time_point now) const;
  bool has_room_for(const Job& job) const;  // with the mutex held

  const std::shared_ptr<Servers> servers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  bool busy_ = false;
  bool stopping_ = false;
  Clock::time_point last_done_{};
  std::uint64_t lost_before_ = 0;  // dropped and failed, as the last flush saw them
  std::thread thread_;
  std::atomic<std::uint64_t> uploaded_{0}, dropped_{0}, failed_{0};
};

}  // namespace kiln::cache
