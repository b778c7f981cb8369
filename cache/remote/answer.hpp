// What a server said to one request.
//
// Threads: values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kiln/cache/remote.hpp"

namespace kiln::cache {

/// Whether the server was not reached, was lost or has no time, so that nobody else fares better at
/// it now.
constexpr bool is_for_all(RemoteFailure failure) noexcept {
  return failure == RemoteFailure::cannot_connect || failure == RemoteFailure::tls ||
         failure == RemoteFailure::reset || failure == RemoteFailure::stalled ||
         failure == RemoteFailure::too_slow || failure == RemoteFailure::overloaded;
}

/// Whether the server answered well, with an object that is not believed.
constexpr bool is_of_object(RemoteFailure failure) noexcept {
  return failure >= RemoteFailure::damaged_object;
}

/// How long an answer, or a request, of so many bytes may take.
inline std::chrono::milliseconds time_for(std::uint64_t bytes, const RemoteTimes& times) {
  return times.first_byte + std::chrono::milliseconds(
                                bytes * 1000 / std::max<std::uint64_t>(times.bytes_per_second, 1));
}

struct Answer {
  RemoteFailure failure = RemoteFailure::none;
  /// Why, for people; no secret, and nothing that the server wrote but numbers and one plain word.
  std::string why{};
  /// It is there, was stored, or was granted; false without a failure is a plain no.
  bool yes = false;
  std::vector<std::byte> body{};
  std::chrono::seconds retry_after{};  ///< what one that is overloaded asks for
  /// The longest of its round trips, those of connecting aside.
  std::chrono::steady_clock::duration waited{};

  static Answer failed(RemoteFailure failure, std::string why) {
    return {.failure = failure, .why = std::move(why)};
  }
};

/// What the beginning of an object tells: how long the whole may be, or why no more of it is
/// wanted, or neither yet.
struct Verdict {
  RemoteFailure failure = RemoteFailure::none;
  std::string why{};
  std::optional<std::uint64_t> most_bytes{};
};
/// Asked as an object comes, until it tells.
using Inspect = std::function<Verdict(std::span<const std::byte> so_far)>;

}  // namespace kiln::cache
