// The remote tier: one compile per key for a whole fleet, on servers that people already run. An
// HTTP server keeps the objects; a Redis or Valkey server keeps small ones at hand, and the leases
// by which one host makes an entry while the others do something else. REMOTE.md gives the bytes,
// the rules and the sizing.
//
// Both are aids: whatever happens to them, an entry that can be made is made. What they answer is
// believed only under the signature of a builder that is listed, so neither server is trusted.
// Threads: values; a lease may be given up on any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"

namespace kiln::cache {

/// What the index of an object says beside its digests, as in a bundle; at most 4 KiB each.
struct EntryLabels {
  std::string architecture{};
  std::string toolchain{};
};

/// How long the servers may take, and what follows when they take longer.
struct RemoteTimes {
  std::chrono::milliseconds connect{250};  ///< an answer without an object is late after as long
  std::chrono::milliseconds first_byte{1000};  ///< from the end of the request
  /// A body may take as long as this rate needs for it, and first_byte on top.
  std::uint64_t bytes_per_second = std::uint64_t{4} << 20;
  /// A server that fails is left alone: first for this long, then twice as long each time, each
  /// time more or less by a half at random; and for no less than its failure cost.
  std::chrono::milliseconds shortest_break{250};
  std::chrono::milliseconds longest_break{30'000};
  /// A server that failed and has served since is waited for: from this long to twice as long after
  /// its last answer, at random. Without an answer since the start nothing is waited for.
  std::chrono::milliseconds patience{5'000};
  std::chrono::milliseconds lease{10'000};  ///< of a holder that is killed; a live one renews it
  std::chrono::milliseconds longest_lease_wait{600'000};  ///< then it is compiled here as well
  std::chrono::milliseconds absent{45'000};  ///< how long, more or less, an absence is remembered
  std::chrono::milliseconds upload{20'000};  ///< how long one upload is tried again
};

struct RemoteOptions {
  /// "http://host:port/prefix" or https. Objects are at <prefix>/ac/<64 hexadecimal digits>.
  std::string objects{};
  /// "redis://user@host:port/number" or rediss for TLS; user, port and number may be left out.
  std::string leases{};
  // Credentials come from files that others than owner and group have no access to.
  std::filesystem::path bearer_token{};    ///< for `objects`: a file with the token alone
  std::filesystem::path netrc{};           ///< for `objects`
  std::filesystem::path headers{};         ///< for `objects`: lines such as "X-Api-Key: abc"
  std::filesystem::path lease_password{};  ///< for `leases`: a file with the password alone
  /// Certificates of authorities, in PEM, that TLS servers are checked by; empty: the system's.
  std::filesystem::path authorities{};
  /// Signs what is published, which is then sent to the servers; null: they are only read.
  std::shared_ptr<const SecretKey> signer{};
  /// Takes objects whoever signed them, and such that nobody did, and may send unsigned ones
  /// (`send_unsigned`): whoever can write to a server then runs code here. Warned of at each start.
  bool accept_anyone = false;
  bool send_unsigned = false;
  std::uint64_t most_object_bytes = std::uint64_t{64} << 20;
  /// Objects up to this size on the wire are kept by the server of the leases as well.
  std::uint64_t small_object_bytes = std::uint64_t{64} << 10;
  /// Uploads that wait; one that does not fit is dropped.
  std::uint64_t most_waiting_bytes = std::uint64_t{256} << 20;
  RemoteTimes times{};
  /// Labels for the object of a key text; may be empty.
  std::function<EntryLabels(std::string_view key_text)> describe{};

  bool is_on() const noexcept { return !objects.empty() || !leases.empty(); }
  bool sends() const noexcept { return signer != nullptr || send_unsigned; }
  /// Puts `url` where its scheme belongs. Errors  invalid_argument for a scheme that is none of
  /// these, for the second of a kind, and for a URL with a secret in it.
  KILN_API Status add(std::string_view url);
};

/// Why a server was of no use. Each is counted under its own name, and none is a miss.
enum class RemoteFailure : unsigned char {
  none,
  skipped,         ///< not asked: it failed a moment ago
  cannot_connect,  ///< refused, unknown name, or no connection in time
  tls,             ///< its certificate or its TLS will not do
  reset,           ///< the connection ended in the middle
  stalled,         ///< no first byte in time
  too_slow,        ///< the body did not come in time, or again and again none came, and late
  empty_body,      ///< success, and nothing with it
  short_body,      ///< the body ended before its length
  too_large,       ///< more than an object may have, or over 64 KiB of headers
  redirected,      ///< the answer is elsewhere, where we do not go
  access_denied,   ///< 401, 403; NOAUTH, WRONGPASS, NOPERM
  overloaded,    ///< 408, 429, 503; LOADING, BUSY and the like: it is to be left alone for a while
  wrong_server,  ///< MOVED, CLUSTERDOWN, READONLY and the like: a node of a cluster, or a replica
  server_error,  ///< any other 5xx; any other error of Redis
  bad_status,    ///< any other status
  bad_reply,     ///< not the protocol
  damaged_object,    ///< no object, or one whose bytes differ from what was signed
  wrong_object,      ///< signed, and of another key
  bad_signature,     ///< not the signer's, or of other contents
  untrusted_signer,  ///< of nobody who is listed, or no longer
  unsigned_object,
  expands_too_far,  ///< decompresses to more than the signed size
};
inline constexpr std::size_t kRemoteFailures =
    static_cast<std::size_t>(RemoteFailure::expands_too_far) + 1;
/// The lower_snake name, as it stands in logs and JSON.
KILN_API std::string_view to_string(RemoteFailure failure) noexcept;

/// What one Store has seen of its remote tier.
struct RemoteCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;    ///< the servers said so
  std::uint64_t leases = 0;    ///< taken
  std::uint64_t busy = 0;      ///< found another host at work, or waited for a server
  std::uint64_t gave_up = 0;   ///< waits that came to their end
  std::uint64_t uploaded = 0;  ///< objects, each by all servers it belongs to
  std::uint64_t dropped = 0;   ///< uploads for which there was no room
  std::uint64_t not_uploaded = 0;
  std::array<std::uint64_t, kRemoteFailures> failures{};
  std::uint64_t of(RemoteFailure failure) const noexcept {
    return failures[static_cast<std::size_t>(failure)];
  }
};

/// The right to make one entry for the fleet, renewed until it is given up. An empty one holds
/// nothing. It saves work; correctness never needs it.
class KILN_API FleetLease {
 public:
  FleetLease() noexcept = default;
  FleetLease(FleetLease&& other) noexcept = default;
  FleetLease& operator=(FleetLease&& other) noexcept = default;
  explicit operator bool() const noexcept { return held_ != nullptr; }

 private:
  friend class RemoteTier;
  std::shared_ptr<void> held_;  // its deleter gives it up
};

/// What one server can do, found out by trying.
struct RemoteCheck {
  std::string url{};      ///< without secrets
  std::string trouble{};  ///< why it is of no use, with the cure; empty when it serves
  RemoteFailure failure = RemoteFailure::none;
  bool reads = false;
  std::optional<bool> writes{};  ///< empty where nothing may be sent
  std::optional<bool> leases{};  ///< likewise
  double round_trip_us = 0;      ///< median of an absent object
  std::string note{};            ///< such as the server's version, and what to mind
};

/// Tries each server that `options` name. Leaves nothing behind but, where it may write to
/// `objects`, one small object under a name that is no key's.
/// Errors  invalid_argument for options that contradict each other; io_failed for a file of theirs;
///         unsupported where Kiln was built without the remote tier.
KILN_API Result<std::vector<RemoteCheck>> check_remote(const RemoteOptions& options);

}  // namespace kiln::cache
