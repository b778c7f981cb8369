#include "cache/remote/redis_connection.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace kiln::cache {
namespace {

// Of a reply: what surrounds an object in it.
constexpr std::uint64_t kReplyRoom = 4096;

}  // namespace

RedisConnection::RedisConnection(const RemoteUrl& url, const RemoteOptions& options)
    : options_(options),
      address_((url.tls ? "https://" : "http://") + url.server()),
      easy_(::curl_easy_init()),
      parser_(options.most_object_bytes + kReplyRoom) {}

Answer RedisConnection::connect() {
  CURL* const easy = easy_.get();
  if (easy == nullptr)
    return Answer::failed(RemoteFailure::cannot_connect, "libcurl has no memory");
  set_common(easy, options_);
  ::curl_easy_setopt(easy, CURLOPT_URL, address_.c_str());
  // Only the connection is wanted: what it says is up to us.
  ::curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
  ::curl_easy_setopt(easy, CURLOPT_SSL_ENABLE_ALPN, 0L);
  ::curl_easy_setopt(
      easy, CURLOPT_TIMEOUT_MS,
      static_cast<long>((options_.times.connect + options_.times.first_byte).count()));
  if (const CURLcode result = ::curl_easy_perform(easy); result != CURLE_OK)
    return answer_of(result);
  curl_socket_t socket = CURL_SOCKET_BAD;
  if (::curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &socket) != CURLE_OK ||
      socket == CURL_SOCKET_BAD)
    return Answer::failed(RemoteFailure::cannot_connect, "libcurl gives no connection");
  socket_ = socket;
  return {.yes = true};
}

bool RedisConnection::wait(short events, Clock::time_point deadline) const {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd ready{.fd = socket_, .events = events, .revents = 0};
  // An interrupted wait is tried again by the caller's next round.
  return rest > 0 && ::poll(&ready, 1, static_cast<int>(std::min<long>(rest, 1000))) != 0;
}

Answer RedisConnection::send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    std::size_t sent = 0;
    const CURLcode result = ::curl_easy_send(easy_.get(), bytes.data(), bytes.size(), &sent);
    if (result == CURLE_OK) {
      bytes.remove_prefix(sent);
    } else if (result != CURLE_AGAIN) {
      return Answer::failed(RemoteFailure::reset, ::curl_easy_strerror(result));
    } else if (!wait(POLLOUT, deadline) && Clock::now() >= deadline) {
      return Answer::failed(RemoteFailure::too_slow, "the request was not taken in time");
    }
  }
  return {.yes = true};
}

Reply RedisConnection::call(std::initializer_list<std::string_view> words, Answer& failure) {
  const std::string command = command_of(std::span(words.begin(), words.size()));
  if (command.empty()) {
    failure = Answer::failed(RemoteFailure::bad_reply, "there is no memory for a command");
    return nullptr;
  }
  failure = send(command, Clock::now() + time_for(command.size(), options_.times));
  if (failure.failure != RemoteFailure::none) return nullptr;

  // The first byte is waited for; what follows has the time that its size takes.
  bool begun = false;
  auto deadline = Clock::now() + options_.times.first_byte;
  std::array<std::byte, 64 << 10> buffer;
  for (;;) {
    RemoteFailure wrong = RemoteFailure::none;
    if (auto reply = parser_.next(wrong)) return reply;
    if (wrong != RemoteFailure::none) {
      failure = Answer::failed(wrong, wrong == RemoteFailure::too_large
                                          ? "the reply is too long"
                                          : "the reply is not that of a Redis server");
      return nullptr;
    }
    std::size_t count = 0;
    const CURLcode result = ::curl_easy_recv(easy_.get(), buffer.data(), buffer.size(), &count);
    if (result == CURLE_OK && count > 0) {
      if (!begun) deadline = Clock::now() + options_.times.first_byte;
      begun = true;
      // Each stretch buys the time of its own size, so that a trickle does not live on.
      deadline += time_for(count, options_.times) - options_.times.first_byte;
      parser_.feed(std::span(buffer).first(count));
    } else if (result == CURLE_OK || result != CURLE_AGAIN) {
      failure = Answer::failed(RemoteFailure::reset, "the server closed the connection");
      return nullptr;
    } else if (!wait(POLLIN, deadline) && Clock::now() >= deadline) {
      failure = begun ? Answer::failed(RemoteFailure::too_slow, "the reply did not end in time")
                      : Answer::failed(RemoteFailure::stalled, "no reply in time");
      return nullptr;
    }
  }
}

}  // namespace kiln::cache
