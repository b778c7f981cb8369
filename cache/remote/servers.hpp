// The servers of a remote tier, each behind its breaker: asks them, counts what they answer, and
// says once what is wrong with one.
//
// Threads: any member from any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cache/once_set.hpp"
#include "cache/remote/answer.hpp"
#include "cache/remote/breaker.hpp"
#include "cache/remote/http_client.hpp"
#include "cache/remote/last_moment.hpp"
#include "cache/remote/object.hpp"
#include "cache/remote/redis_client.hpp"
#include "kiln/cache/log.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

class Servers {
 public:
  /// Errors  as check_remote().
  static Result<std::shared_ptr<Servers>> open(const RemoteOptions& options, const LogSink& log);

  const RemoteOptions& options() const noexcept { return options_; }
  /// From `when` on all requests fail at once.
  void give_up_at(Breaker::Time when) noexcept { last_->set(when); }
  bool keep_objects() const noexcept { return objects_ != nullptr; }
  bool keep_leases() const noexcept { return leases_ != nullptr; }

  /// What came of asking for an object, and the entry in it where it is there and believed.
  struct Got {
    Answer answer{};
    std::optional<Entry> entry{};
    bool leased = false;  ///< by somebody
  };
  Got get(const std::string& name, const WantedObject& wanted);
  Got look(const std::string& name, const WantedObject& wanted);
  Answer take_lease(const std::string& name, const std::string& token);
  // What follows is asked even during a break: from threads that nobody waits for, which pause by
  // themselves.
  Answer put(const std::string& name, std::span<const std::byte> object);
  Answer put_small(const std::string& name, std::span<const std::byte> object);
  Answer renew_lease(const std::string& name, const std::string& token);
  Answer release_lease(const std::string& name, const std::string& token);

  /// Whether it has served so lately that a failure of it is worth waiting for.
  bool objects_are_waited_for() const;
  bool leases_are_waited_for() const;
  bool leases_are_just_back() const;

  /// Counts what is wrong with an object of ours, and says so once.
  void note_object(const std::string& name, RemoteFailure failure, const std::string& why);
  std::uint64_t count_of(RemoteFailure failure) const noexcept {
    return counts_[static_cast<std::size_t>(failure)].load(std::memory_order_relaxed);
  }

 private:
  struct Server {
    std::string shown;  // its URL without secrets
    Breaker breaker;
  };
  Servers(const RemoteOptions& options, LogSink log);
  /// All share a breaker, and who may not write can often read: a write that the server refuses
  /// says nothing of reads. Nobody waits for what is done in the background.
  enum class Kind : unsigned char { read, write, background };
  template <class Ask>
  Answer insist(Server& server, const Ask& question);
  template <class Ask>
  auto ask(Server& server, Kind kind, const Ask& question);
  void note(Server& server, Kind kind, const Answer& answer, Breaker::Time asked);
  /// Counts a failure, and says once what is wrong.
  void report(const Server& server, const Answer& answer);
  void count(RemoteFailure failure) noexcept {
    counts_[static_cast<std::size_t>(failure)].fetch_add(1, std::memory_order_relaxed);
  }
  void warn(RemoteFailure failure, std::size_t kind, const std::string& message);

  const RemoteOptions options_;
  const LogSink log_;
  const std::shared_ptr<LastMoment> last_ = std::make_shared<LastMoment>();
  std::unique_ptr<HttpClient> objects_;
  std::unique_ptr<RedisClient> leases_;
  Server object_server_;
  Server lease_server_;
  std::array<std::atomic<std::uint64_t>, kRemoteFailures> counts_{};
  OnceSet<256> told_;
};

}  // namespace kiln::cache
