// One connection to a Redis server.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "cache/remote/curl_library.hpp"
#include "cache/remote/last_moment.hpp"
#include "cache/remote/redis_reply.hpp"
#include "cache/remote/url.hpp"
#include "kiln/cache/remote.hpp"

namespace kiln::cache {

class RedisConnection {
 public:
  /// `last` may be null.
  RedisConnection(const RemoteUrl& url, const RemoteOptions& options,
                  std::shared_ptr<const LastMoment> last = {});

  /// Connects, with TLS where the URL says so.
  Answer connect();
  using Clock = std::chrono::steady_clock;
  /// Sends a command and waits for its reply, which is null after a failure in `answer`; the
  /// connection is of no use then. An error that the server replies is no failure here. Deadlines
  /// count from `start`, so that several commands have no more time than one. A reply has 128 KiB
  /// at most, and on top what `inspect` allows the first string in it; it may be empty.
  Reply call(std::initializer_list<std::string_view> words, Answer& answer, Clock::time_point start,
             const Inspect& inspect = {});
  /// Whether something came behind the reply.
  bool has_more() const noexcept { return parser_.has_more(); }

 private:
  Reply exchange(std::string_view command, Answer& answer, Clock::time_point start,
                 const Inspect& inspect);
  /// False when the time is over, and not before.
  bool wait(short events, Clock::time_point deadline) const;
  Answer send(std::string_view bytes, Clock::time_point deadline);

  const RemoteOptions& options_;
  const std::shared_ptr<const LastMoment> last_;
  std::string address_;
  Easy easy_;
  ReplyParser parser_;
  int socket_ = -1;
};

}  // namespace kiln::cache
