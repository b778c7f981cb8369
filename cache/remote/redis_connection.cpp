#include "cache/remote/redis_connection.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kiln::cache {
namespace {

// Of a reply, an object that is wanted aside. It has room for one of the usual size that is not, so
// that the lease behind it is seen.
constexpr std::uint64_t kMostPlainBytes = 128 << 10;

}  // namespace

RedisConnection::RedisConnection(const RemoteUrl& url, const RemoteOptions& options,
                                 std::shared_ptr<const LastMoment> last)
    : options_(options),
      last_(std::move(last)),
      address_((url.tls ? "https://" : "http://") + url.server()),
      easy_(::curl_easy_init()),
      parser_(kMostPlainBytes) {}

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
  const auto end = last_ != nullptr ? last_->or_earlier(deadline) : deadline;
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  if (rest.count() <= 0) return false;
  pollfd ready{.fd = socket_, .events = events, .revents = 0};
  // The caller tries again, whatever ended it.
  ::poll(&ready, 1, static_cast<int>(std::min(rest, LastMoment::kLongestNap).count()));
  return true;
}

Answer RedisConnection::send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    std::size_t sent = 0;
    const CURLcode result = ::curl_easy_send(easy_.get(), bytes.data(), bytes.size(), &sent);
    if (result == CURLE_OK) {
      bytes.remove_prefix(sent);
    } else if (result != CURLE_AGAIN) {
      return Answer::failed(RemoteFailure::reset, ::curl_easy_strerror(result));
    } else if (!wait(POLLOUT, deadline)) {
      return Answer::failed(RemoteFailure::too_slow, "the request was not taken in time");
    }
  }
  return {.yes = true};
}

Reply RedisConnection::call(std::initializer_list<std::string_view> words, Answer& answer,
                            Clock::time_point start, const Inspect& inspect) {
  const std::string command = command_of(std::span(words.begin(), words.size()));
  if (command.empty()) {
    answer = Answer::failed(RemoteFailure::bad_reply, "there is no memory for a command");
    return nullptr;
  }
  const auto asked = Clock::now();
  const auto waited_before = answer.waited;
  auto reply = exchange(command, answer, start, inspect);
  answer.waited = std::max(waited_before, Clock::now() - asked);
  return reply;
}

Reply RedisConnection::exchange(std::string_view command, Answer& answer, Clock::time_point start,
                                const Inspect& inspect) {
  // The first byte is waited for; what follows has the time that its size takes.
  auto deadline = start + time_for(command.size(), options_.times);
  answer = send(command, deadline);
  if (answer.failure != RemoteFailure::none) return nullptr;

  bool begun = false;
  std::string so_far;  // until `inspect` has told
  Verdict verdict;
  parser_.allow(kMostPlainBytes);
  std::array<std::byte, 64 << 10> buffer;
  for (;;) {
    RemoteFailure wrong = RemoteFailure::none;
    if (auto reply = parser_.next(wrong)) return reply;
    if (wrong != RemoteFailure::none) {
      const bool too_large = wrong == RemoteFailure::too_large;
      answer = too_large && verdict.failure != RemoteFailure::none
                   ? Answer::failed(verdict.failure, verdict.why)
                   : Answer::failed(wrong, too_large ? "the reply is too long"
                                                     : "the reply is not that of a Redis server");
      return nullptr;
    }
    std::size_t count = 0;
    const CURLcode result = ::curl_easy_recv(easy_.get(), buffer.data(), buffer.size(), &count);
    if (result == CURLE_OK && count > 0) {
      if (!begun) deadline = std::min(Clock::now(), deadline) + options_.times.first_byte;
      begun = true;
      // Each stretch buys the time of its own size, so that a trickle does not live on.
      deadline += time_for(count, options_.times) - options_.times.first_byte;
      const auto part = std::span(buffer).first(count);
      if (inspect && verdict.failure == RemoteFailure::none && !verdict.most_bytes) {
        so_far.append(reinterpret_cast<const char*>(part.data()), part.size());
        verdict = inspect(std::as_bytes(std::span(first_string_in(so_far))));
        if (verdict.most_bytes) parser_.allow(kMostPlainBytes + *verdict.most_bytes);
      }
      parser_.feed(part);
    } else if (result == CURLE_OK || result != CURLE_AGAIN) {
      answer = Answer::failed(RemoteFailure::reset, "the server closed the connection");
      return nullptr;
    } else if (!wait(POLLIN, deadline)) {
      answer = begun ? Answer::failed(RemoteFailure::too_slow, "the reply did not end in time")
                     : Answer::failed(RemoteFailure::stalled, "no reply in time");
      return nullptr;
    }
  }
}

}  // namespace kiln::cache
