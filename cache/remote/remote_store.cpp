// How a host asks the fleet for an entry, and whether it is its turn to make it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/capped.hpp"
#include "cache/remote/lease_keeper.hpp"
#include "cache/remote/object.hpp"
#include "cache/remote/random.hpp"
#include "cache/remote/remote_tier.hpp"
#include "cache/remote/servers.hpp"
#include "cache/remote/uploader.hpp"
#include "cache/remote/url.hpp"
#include "cache/sodium.hpp"
#include "kiln/cache/bundle.hpp"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{10};  // of a host that waits for another
constexpr std::chrono::milliseconds kLongestPause{500};
// What a request under way and the leases have when the store ends, whatever the servers do.
constexpr std::chrono::milliseconds kLongestEnd{500};
// A wait that nobody came back to for so long is over.
constexpr std::chrono::seconds kAbandoned{30};
constexpr std::size_t kMostRemembered = 4096;

/// What nobody else calls itself.
std::string new_token() {
  Sha256 token;
  if (const auto library = sodium())
    (*library)->random_bytes(token.bytes.data(), token.bytes.size());
  return token.hex();
}

/// Whether who grants leases may be back in a moment. One that answers, and grants none, will not
/// do so in a moment either.
bool is_away(RemoteFailure failure) noexcept {
  return is_for_all(failure) || failure == RemoteFailure::skipped;
}

class RemoteStore final : public RemoteTier {
 public:
  RemoteStore(std::shared_ptr<Servers> servers, Signers accepted)
      : servers_(std::move(servers)),
        accepted_(std::move(accepted)),
        keeper_(std::make_shared<LeaseKeeper>(servers_)),
        uploader_(std::make_unique<Uploader>(servers_)) {}

  ~RemoteStore() override {
    if (is_ours()) {
      servers_->give_up_at(Clock::now() + kLongestEnd);
      uploader_.reset();
      keeper_->stop();
      return;
    }
    // In a forked child the threads are not there, and the connections belong to the parent.
    static_cast<void>(uploader_.release());
    static_cast<void>(new std::shared_ptr<LeaseKeeper>(keeper_));
    static_cast<void>(new std::shared_ptr<Servers>(servers_));
  }

  Fetched fetch(const Digest& name, std::string_view key_text, Wish wish) override;
  void publish(std::string_view key_text, std::string_view facts,
               std::span<const std::byte> payload, FleetLease lease) override {
    if (is_ours() && servers_->options().sends())
      upload(key_text, facts, payload, std::move(lease), /*waits_for_room=*/false);
  }
  Status send(const Entry& entry) override;
  Status flush(std::chrono::milliseconds longest, const std::stop_token& stop) override {
    return is_ours() ? uploader_->flush(longest, stop) : Status{};
  }
  RemoteCounters counters() const override;

 private:
  /// What this process knows of one key between two calls.
  struct Wait {
    Clock::time_point since{};
    Clock::time_point next{};
    Clock::duration pause{};
  };
  /// What the servers said to one question.
  struct Look {
    std::optional<Entry> entry{};
    bool leased = false;          // by somebody
    bool objects_failed = false;  // so that nobody knows
    bool leases_failed = false;
    bool leases_are_away = false;  // so that it may come back
    bool refused = false;          // something is there, and is not believed
    bool is_miss() const noexcept { return !objects_failed && !leases_failed && !refused; }
  };

  bool is_ours() const noexcept { return ::getpid() == process_; }
  Look look(const std::string& wire_name, const WantedObject& wanted, bool lease_is_ours = false);
  bool is_worth_waiting(const Look& look, Clock::time_point since, Clock::time_point now) const;

  bool upload(std::string_view key_text, std::string_view facts, std::span<const std::byte> payload,
              FleetLease lease, bool waits_for_room);

  std::optional<Clock::time_point> waiting_since(const std::string& name, Clock::time_point now,
                                                 bool& too_early);
  Fetched come_back(const std::string& name, Clock::time_point now);
  void forget(const std::string& name);
  bool is_known_absent(const std::string& name, Clock::time_point now);
  void remember_absent(const std::string& name, Clock::time_point now);

  const pid_t process_ = ::getpid();
  const std::shared_ptr<Servers> servers_;
  const Signers accepted_;
  const std::shared_ptr<LeaseKeeper> keeper_;
  std::unique_ptr<Uploader> uploader_;

  std::mutex mutex_;
  std::map<std::string, Wait> waits_;
  std::map<std::string, Clock::time_point> absent_until_;

  std::atomic<std::uint64_t> hits_{0}, misses_{0}, leases_{0}, busy_{0}, gave_up_{0};
};

std::optional<Clock::time_point> RemoteStore::waiting_since(const std::string& name,
                                                            Clock::time_point now,
                                                            bool& too_early) {
  const std::lock_guard lock(mutex_);
  auto found = waits_.find(name);
  if (found != waits_.end() && now - found->second.next > kAbandoned) {
    waits_.erase(found);
    found = waits_.end();
  }
  too_early = found != waits_.end() && now < found->second.next;
  if (found == waits_.end()) return std::nullopt;
  return found->second.since;
}

Fetched RemoteStore::come_back(const std::string& name, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (waits_.size() >= kMostRemembered)
    std::erase_if(waits_, [now](const auto& one) { return now - one.second.next > kAbandoned; });
  auto& wait = waits_[name];
  if (wait.since == Clock::time_point{}) wait = {.since = now, .pause = kFirstPause};
  wait.next = Clock::now() + jittered(wait.pause, 0.5, 1.5);
  wait.pause = std::min<Clock::duration>(2 * wait.pause, kLongestPause);
  ++busy_;
  return {.busy = true};
}

void RemoteStore::forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  waits_.erase(name);
}

bool RemoteStore::is_known_absent(const std::string& name, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = absent_until_.find(name);
  return found != absent_until_.end() && now < found->second;
}

void RemoteStore::remember_absent(const std::string& name, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (absent_until_.size() >= kMostRemembered) absent_until_.clear();
  absent_until_[name] = now + jittered(servers_->options().times.absent, 0.67, 1.33);
}

RemoteStore::Look RemoteStore::look(const std::string& wire_name, const WantedObject& wanted,
                                    bool lease_is_ours) {
  Look look;
  if (servers_->keep_leases()) {
    auto seen = servers_->look(wire_name, wanted);
    // A server with an object that is not believed keeps leases all the same.
    look.refused = is_of_object(seen.answer.failure);
    look.leases_failed = seen.answer.failure != RemoteFailure::none && !look.refused;
    look.leases_are_away = is_away(seen.answer.failure);
    look.leased = seen.leased && !lease_is_ours;
    look.entry = std::move(seen.entry);
    // Whoever holds the lease has not sent it yet.
    if (look.entry || look.leased) return look;
  }
  if (servers_->keep_objects()) {
    auto got = servers_->get(wire_name, wanted);
    look.refused |= is_of_object(got.answer.failure);
    look.objects_failed =
        got.answer.failure != RemoteFailure::none && !is_of_object(got.answer.failure);
    look.entry = std::move(got.entry);
  }
  return look;
}

bool RemoteStore::is_worth_waiting(const Look& look, Clock::time_point since,
                                   Clock::time_point now) const {
  // A server that fails for this key alone, and serves others, is not waited for without end.
  if (now - since > 2 * servers_->options().times.patience) return false;
  return (look.objects_failed && servers_->objects_are_waited_for()) ||
         (look.leases_are_away && servers_->leases_are_waited_for());
}

Fetched RemoteStore::fetch(const Digest& name, std::string_view key_text, Wish wish) {
  if (!is_ours()) return {};
  const auto key_sha256 = sha256_of(std::as_bytes(std::span(key_text)));
  if (!key_sha256) return {};
  const auto& options = servers_->options();
  const std::string wire_name = key_sha256->hex();
  const WantedObject wanted{.name = name,
                            .key_sha256 = *key_sha256,
                            .key_text = key_text,
                            .accepted = accepted_,
                            .most_bytes = options.most_object_bytes};
  const auto now = Clock::now();
  bool too_early = false;
  const auto waiting = waiting_since(wire_name, now, too_early);
  if (too_early) return {.busy = true};
  if (!waiting && is_known_absent(wire_name, now)) return {};

  const auto since = waiting.value_or(now);
  const auto our_turn = [&](FleetLease lease) {
    forget(wire_name);
    return Fetched{.lease = std::move(lease)};
  };
  const auto found = [&](Look& look) {
    ++hits_;
    forget(wire_name);
    return Fetched{.entry = std::move(look.entry)};
  };
  auto first = look(wire_name, wanted);
  if (first.entry) return found(first);
  if (now - since >= capped(options.times.longest_lease_wait)) {
    ++gave_up_;
    return our_turn({});
  }
  if (first.leased || is_worth_waiting(first, since, now)) return come_back(wire_name, now);
  if (first.is_miss()) ++misses_;
  // Only who can send what it makes keeps the others waiting for it.
  const bool takes_leases = servers_->keep_leases() && options.sends();
  // Who takes leases asks again when a compile came to nothing, and takes another.
  if (first.is_miss() && !takes_leases) remember_absent(wire_name, now);
  if (!takes_leases || wish == Wish::look || first.leases_failed) return our_turn({});

  if (servers_->leases_are_just_back()) return come_back(wire_name, now);
  const std::string token = new_token();
  const auto taken = servers_->take_lease(wire_name, token);
  if (taken.failure != RemoteFailure::none) {
    return is_worth_waiting({.leases_are_away = is_away(taken.failure)}, since, now)
               ? come_back(wire_name, now)
               : our_turn({});
  }
  if (!taken.yes) return come_back(wire_name, now);
  auto lease = lease_of(keeper_->keep(wire_name, token));
  // Its last holder may have sent the entry after we looked.
  auto second = look(wire_name, wanted, /*lease_is_ours=*/true);
  if (second.entry) return found(second);
  if (is_worth_waiting(second, since, now)) return come_back(wire_name, now);
  ++leases_;
  return our_turn(std::move(lease));
}

bool RemoteStore::upload(std::string_view key_text, std::string_view facts,
                         std::span<const std::byte> payload, FleetLease lease,
                         bool waits_for_room) {
  const auto key_sha256 = sha256_of(std::as_bytes(std::span(key_text)));
  return key_sha256 && uploader_->add({.name = key_sha256->hex(),
                                       .key_text = std::string(key_text),
                                       .facts = std::string(facts),
                                       .payload = {payload.begin(), payload.end()},
                                       .lease = std::move(lease)},
                                      waits_for_room);
}

Status RemoteStore::send(const Entry& entry) {
  if (!servers_->options().sends())
    return Error(ErrorCode::invalid_argument,
                 "nothing is sent to a remote cache without a key to sign it with; name a "
                 "builder's secret key (KILN_REMOTE_KEY)");
  if (!is_ours())
    return Error(ErrorCode::invalid_argument,
                 "nothing is sent to a remote cache by a forked child; open the cache anew in it");
  if (upload(entry.key_text(), entry.facts(), entry.payload(), {}, /*waits_for_room=*/true))
    return {};
  return Error(ErrorCode::io_failed,
               "an entry was dropped: the uploads that wait for the remote cache are at their "
               "limit of " +
                   std::to_string(servers_->options().most_waiting_bytes) +
                   " bytes; kiln remote check tells how it does");
}

RemoteCounters RemoteStore::counters() const {
  RemoteCounters counters{.hits = hits_,
                          .misses = misses_,
                          .leases = leases_,
                          .busy = busy_,
                          .gave_up = gave_up_,
                          .uploaded = uploader_->uploaded(),
                          .dropped = uploader_->dropped(),
                          .not_uploaded = uploader_->failed()};
  for (std::size_t i = 0; i < kRemoteFailures; ++i)
    counters.failures[i] = servers_->count_of(static_cast<RemoteFailure>(i));
  return counters;
}

}  // namespace

Result<std::unique_ptr<RemoteTier>> open_remote(const RemoteOptions& options,
                                                const std::vector<PublicKey>& signers,
                                                const LogSink& log) {
  // Without it nothing that comes could be believed.
  if (const auto probe = sha256_of({}); !probe) return probe.error();
  const auto shown = without_secrets(options.objects.empty() ? options.leases : options.objects);
  if (signers.empty() && !options.accept_anyone)
    return Error(ErrorCode::invalid_argument,
                 "the remote cache " + shown +
                     " is named, and nobody whose signature would be taken; name the builders' "
                     "public keys (KILN_CACHE_SIGNERS)");
  if (options.accept_anyone && log)
    log(LogLevel::warning, "the remote cache " + shown +
                               " is used WITHOUT SIGNATURES: whoever can write to it, or stands on "
                               "the way, runs code in this process");
  KILN_TRY(auto servers, Servers::open(options, log));
  return std::unique_ptr<RemoteTier>(std::make_unique<RemoteStore>(
      std::move(servers), Signers{.keys = signers, .anyone = options.accept_anyone}));
}

}  // namespace kiln::cache
