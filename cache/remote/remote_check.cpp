// kiln remote check: what a server can do, found out by trying.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/remote/answer.hpp"
#include "cache/remote/http_client.hpp"
#include "cache/remote/redis_client.hpp"
#include "cache/remote/url.hpp"
#include "cache/sodium.hpp"
#include "kiln/cache/remote.hpp"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kRounds = 21;
constexpr std::uint64_t kMostProbeBytes = 64 << 10;

/// Digests of nothing that is a key, so that no entry ever has these names.
std::string probe_name(std::string_view purpose) {
  const auto digest = sha256_of(std::as_bytes(std::span(purpose)));
  return digest ? digest->hex() : std::string(64, '0');
}

std::string fresh_name() {
  Sha256 name;
  if (const auto library = sodium()) (*library)->random_bytes(name.bytes.data(), name.bytes.size());
  return name.hex();
}

std::string_view cure_of(RemoteFailure failure) noexcept {
  switch (failure) {
    case RemoteFailure::cannot_connect:
      return "start the server, or put host and port right";
    case RemoteFailure::tls:
      return "name the authority that signed its certificate (KILN_REMOTE_CA)";
    case RemoteFailure::access_denied:
      return "name a file with the credentials (KILN_REMOTE_TOKEN, KILN_REMOTE_NETRC, "
             "KILN_REMOTE_HEADERS, KILN_REMOTE_PASSWORD)";
    case RemoteFailure::redirected:
      return "name the place that it redirects to";
    case RemoteFailure::reset:
    case RemoteFailure::bad_reply:
      return "see that it is a server of this kind; where it has TLS write https:// or rediss://";
    case RemoteFailure::bad_status:
      return "let it take GET, HEAD and PUT below the prefix (nginx: dav_methods PUT, "
             "client_max_body_size 64m); where it has TLS write https://";
    case RemoteFailure::overloaded:
      return "ask again later, or raise the server's limit of requests";
    case RemoteFailure::wrong_server:
      return "name one server of Redis or Valkey that takes writes";
    default:
      return "look at the server's log";
  }
}

/// Notes a failure; true when there is none.
bool serves(RemoteCheck& check, std::string_view what, const Answer& answer) {
  if (answer.failure == RemoteFailure::none) return true;
  check.failure = answer.failure;
  check.trouble = std::string(what) + " fails (" + std::string(to_string(answer.failure)) + ": " +
                  answer.why + "); " + std::string(cure_of(answer.failure));
  return false;
}

/// The median of some round trips; false at the first that fails.
template <class Ask>
bool measure(RemoteCheck& check, const Ask& ask) {
  std::array<double, kRounds> times{};
  for (double& time : times) {
    const auto start = Clock::now();
    const Answer answer = ask();
    time = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (!serves(check, "reading", answer)) return false;
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  check.round_trip_us = times[kRounds / 2];
  return true;
}

RemoteCheck check_objects(HttpClient& client, const RemoteOptions& options) {
  RemoteCheck check{.url = without_secrets(options.objects)};
  const std::string absent = fresh_name();
  if (!measure(check, [&] { return client.get(absent); })) return check;
  const Answer nothing = client.get(absent);
  if (nothing.yes) {
    check.trouble =
        "it has an object under a name that was made up: it answers everything alike; put the "
        "prefix right, and let it answer 404 for what is not there";
    check.failure = RemoteFailure::bad_reply;
    return check;
  }
  check.reads = true;
  if (!options.sends()) return check;
  // One name for all checks, so that they leave one object behind.
  const std::string name = probe_name("kiln remote check");
  const std::string text = "kiln remote check " + fresh_name();
  const auto bytes = std::as_bytes(std::span(text));
  check.writes = false;
  if (!serves(check, "writing", client.put(name, bytes))) return check;
  const Answer again = client.get(name);
  if (!serves(check, "reading what was written", again)) return check;
  check.writes =
      again.yes && std::equal(again.body.begin(), again.body.end(), bytes.begin(), bytes.end());
  if (!*check.writes) {
    check.trouble =
        "it takes an object and gives back another: a cache stands before it, or it does not let "
        "objects be replaced; name the server itself, and let PUT replace";
    check.failure = RemoteFailure::bad_reply;
  }
  const Answer head = client.head(name);
  if (head.failure != RemoteFailure::none || !head.yes) check.note = "it does not answer HEAD";
  return check;
}

RemoteCheck check_leases(RedisClient& client, const RemoteOptions& options) {
  RemoteCheck check{.url = without_secrets(options.leases)};
  const std::string name = fresh_name();
  if (!measure(check, [&] { return client.look(name).object; })) return check;
  check.reads = true;
  const auto version = client.version();
  // Who may not ask for it can use the rest all the same.
  if (version) check.note = *version;
  if (!options.sends()) return check;
  check.leases = false;
  check.writes = false;
  const std::string ours = fresh_name();
  const std::string theirs = fresh_name();
  const Answer taken = client.take_lease(name, ours);
  if (!serves(check, "taking a lease", taken)) return check;
  const Answer refused = client.take_lease(name, theirs);
  const bool leased = client.look(name).leased;
  const Answer renewed = client.renew_lease(name, ours);
  if (!serves(check, "renewing a lease", renewed)) return check;
  const Answer stolen = client.release_lease(name, theirs);
  const Answer released = client.release_lease(name, ours);
  if (!serves(check, "giving a lease up", released)) return check;
  check.writes = true;
  check.leases = taken.yes && !refused.yes && leased && renewed.yes && !stolen.yes &&
                 released.yes && !client.look(name).leased;
  if (!*check.leases) {
    check.trouble =
        "it does not keep leases as Redis does: two can hold one; name one node of Redis or Valkey";
    check.failure = RemoteFailure::bad_reply;
  }
  return check;
}

}  // namespace

Result<std::vector<RemoteCheck>> check_remote(const RemoteOptions& options) {
  if (const auto probe = sha256_of({}); !probe) return probe.error();
  std::vector<RemoteCheck> checks;
  if (!options.objects.empty()) {
    KILN_TRY(const auto url, parse_remote_url(options.objects));
    // Nothing that is asked for is longer: a server that says so is not waited for.
    auto small = options;
    small.most_object_bytes = kMostProbeBytes;
    KILN_TRY(const auto client, HttpClient::open(url, small));
    checks.push_back(check_objects(*client, options));
  }
  if (!options.leases.empty()) {
    KILN_TRY(const auto url, parse_remote_url(options.leases));
    KILN_TRY(const auto client, RedisClient::open(url, options));
    checks.push_back(check_leases(*client, options));
  }
  return checks;
}

}  // namespace kiln::cache
