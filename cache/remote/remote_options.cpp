// What of the remote tier is there however Kiln is built: its options and its names.
#include <algorithm>
#include <string>
#include <string_view>

#include "cache/remote/url.hpp"
#include "kiln/cache/remote.hpp"

namespace kiln::cache {

Status RemoteOptions::add(std::string_view url) {
  // Around a comma in a list of them.
  url.remove_prefix(std::min(url.find_first_not_of(' '), url.size()));
  url = url.substr(0, url.find_last_not_of(' ') + 1);
  const auto parsed = parse_remote_url(url);
  if (!parsed) return parsed.error();
  std::string& place = parsed->keeps_objects ? objects : leases;
  if (!place.empty())
    return Error(ErrorCode::invalid_argument,
                 "the remote caches " + without_secrets(place) + " and " + without_secrets(url) +
                     " are of one kind; name one of http and one of redis at most");
  place = url;
  return {};
}

std::string_view to_string(RemoteFailure failure) noexcept {
  switch (failure) {
    case RemoteFailure::none:
      return "none";
    case RemoteFailure::skipped:
      return "skipped";
    case RemoteFailure::cannot_connect:
      return "cannot_connect";
    case RemoteFailure::tls:
      return "tls";
    case RemoteFailure::reset:
      return "reset";
    case RemoteFailure::stalled:
      return "stalled";
    case RemoteFailure::too_slow:
      return "too_slow";
    case RemoteFailure::empty_body:
      return "empty_body";
    case RemoteFailure::short_body:
      return "short_body";
    case RemoteFailure::too_large:
      return "too_large";
    case RemoteFailure::redirected:
      return "redirected";
    case RemoteFailure::access_denied:
      return "access_denied";
    case RemoteFailure::overloaded:
      return "overloaded";
    case RemoteFailure::wrong_server:
      return "wrong_server";
    case RemoteFailure::server_error:
      return "server_error";
    case RemoteFailure::bad_status:
      return "bad_status";
    case RemoteFailure::bad_reply:
      return "bad_reply";
    case RemoteFailure::damaged_object:
      return "damaged_object";
    case RemoteFailure::wrong_object:
      return "wrong_object";
    case RemoteFailure::bad_signature:
      return "bad_signature";
    case RemoteFailure::untrusted_signer:
      return "untrusted_signer";
    case RemoteFailure::unsigned_object:
      return "unsigned_object";
    case RemoteFailure::expands_too_far:
      return "expands_too_far";
  }
  return "unknown";
}

}  // namespace kiln::cache
