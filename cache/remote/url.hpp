// The URL of a server, taken apart; and how it may be shown.
//
// Threads: pure functions and values.
#pragma once

#include <string>
#include <string_view>

#include "kiln/cache/result.hpp"

namespace kiln::cache {

struct RemoteUrl {
  bool keeps_objects = false;  ///< http and https; else Redis or Valkey
  bool tls = false;
  std::string user{};  ///< of Redis; empty: its default one
  std::string host{};  ///< with brackets where it is an IPv6 address
  std::string port{};  ///< a number; never empty
  std::string path{};  ///< begins with a slash, or is empty; no slash at its end

  /// The part that names the server, without the user.
  std::string server() const { return host + ':' + port; }
};

/// Errors  invalid_argument: another scheme, no host, or a place for secrets is in use. The message
///         shows the URL without them.
Result<RemoteUrl> parse_remote_url(std::string_view url);

/// `url` without what may be a secret in it: user, password, query, fragment.
std::string without_secrets(std::string_view url);

}  // namespace kiln::cache
