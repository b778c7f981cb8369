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
#include "cache/remote/redis_reply.hpp"
#include "cache/remote/url.hpp"
#include "kiln/cache/remote.hpp"

namespace kiln::cache {

class RedisConnection {
 public:
  RedisConnection(const RemoteUrl& url, const RemoteOptions& options);

  /// Connects, with TLS where the URL says so.
  Answer connect();
  /// Sends a command and waits for its reply, which is null after a failure; the connection is of
  /// no use then. An error that the server replies is no failure here.
  Reply call(std::initializer_list<std::string_view> words, Answer& failure);

 private:
  using Clock = std::chrono::steady_clock;
  bool wait(short events, Clock::time_point deadline) const;
  Answer send(std::string_view bytes, Clock::time_point deadline);

  const RemoteOptions& options_;
  std::string address_;
  Easy easy_;
  ReplyParser parser_;
  int socket_ = -1;
};

}  // namespace kiln::cache
