// A Redis or Valkey server: small objects, and the leases of a fleet.
//
// The connection is libcurl's (names, TLS, deadlines), the protocol hiredis's: the latter's own
// connections write in a way that ends the process when the server went away, and wait for names
// without a limit.
// Threads: any member from any thread; each request has a connection of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cache/remote/answer.hpp"
#include "cache/remote/last_moment.hpp"
#include "cache/remote/url.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

class RedisClient {
 public:
  /// Reads the file with the password; connects at the first request. `last` may be null.
  /// Errors  io_failed, invalid_argument for that file; invalid_argument for a user without one.
  static Result<std::unique_ptr<RedisClient>> open(const RemoteUrl& url,
                                                   const RemoteOptions& options,
                                                   std::shared_ptr<const LastMoment> last = {});
  ~RedisClient();

  /// An object, and whether somebody holds its lease, in one round trip.
  struct Look {
    Answer object{};
    bool leased = false;
  };
  /// `inspect` may be empty; then an object has 128 KiB at most.
  Look look(const std::string& name, const Inspect& inspect = {});
  Answer put(const std::string& name, std::span<const std::byte> object);

  /// Takes the lease of `name` for `token`; a plain no when another holds it.
  Answer take_lease(const std::string& name, const std::string& token);
  /// Prolongs it if it is still the token's, or takes it anew if it is nobody's; else a plain no.
  Answer renew_lease(const std::string& name, const std::string& token);
  /// Ends it if it is still the token's.
  Answer release_lease(const std::string& name, const std::string& token);

  /// "Redis 7.0.15" or the like.
  Result<std::string> version();

 private:
  struct State;
  explicit RedisClient(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::cache
