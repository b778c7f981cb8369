#include "kiln/cache/store.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cache/directory.hpp"
#include "cache/entry_file.hpp"
#include "cache/layout.hpp"
#include "cache/lock_file.hpp"
#include "cache/store_state.hpp"
#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/log.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {
namespace {

/// `path` once and for all: the working directory may change later.
Status make_absolute(std::filesystem::path& path) {
  std::error_code failure;
  auto absolute = std::filesystem::absolute(path, failure);
  if (failure || path.empty())
    return Error(ErrorCode::invalid_argument,
                 path.empty() ? "the name of a read-only cache directory is empty; leave it out"
                              : "the cache directory " + path.string() +
                                    " is relative to a working directory that is gone; give an "
                                    "absolute path");
  path = std::move(absolute);
  return {};
}

void add_one(std::atomic<std::uint64_t>& count) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Store::State::State(StoreOptions given, const SystemCalls& calls)
    : directory(std::move(given.directory)),
      durability(given.durable ? Durability::durable : Durability::relaxed),
      limits(given.limits),
      log(std::move(given.log)),
      tree(Root(directory.string(), given.trust, calls), /*stamps=*/true) {
  for (const auto& path : given.read_only) {
    below.push_back(std::make_unique<Below>());
    below.back()->tier = open_tier(path, given.trust, calls);
  }
}

void Store::State::warn_of_damage(const std::string& path, const Digest& name,
                                  const std::string& damage, std::string_view cure) const {
  if (damage_reported.first_time(name.low))
    warn("cache entry " + path + " is damaged (" + damage + "); " + std::string(cure));
}

void Store::State::warn_of_trouble(int error, const std::string& what) const {
  // Numbers of their own for the errors that are none of the system's.
  const auto key = static_cast<std::uint64_t>(error < 0 ? 10'000 - error : error);
  if (trouble_reported.first_time(key + 1)) warn(what);
}

Found Store::State::find(const Digest& name, std::string_view key_text) {
  Found found;
  if (has_directory()) {
    const Place place = entry_place(name);
    Examined there = tree.look_up(place, name, key_text, /*is_use=*/true);
    if (there.entry) {
      add_one(count.hits);
      return {.entry = std::move(there.entry), .damage = {}};
    }
    if (!there.damage.empty()) {
      add_one(count.damaged);
      warn_of_damage(root().path() + '/' + place.path(), name, there.damage,
                     "it will be made again");
    }
    if (there.error != 0) {
      add_one(there.error == kRefused ? count.refused : count.unavailable);
      warn_of_trouble(there.error, "cannot read the cache " + root().path() + ": " +
                                       root().explain(there.error) + "; going on without, or " +
                                       std::string(kCure));
    }
    found.damage = std::move(there.damage);
  }
  for (std::size_t i = 0; i < below.size(); ++i) {
    auto& [tier, counts] = *below[i];
    TierAnswer answer = tier->find(name, key_text);
    if (answer.entry) {
      add_one(counts.hits);
      return {.entry = std::move(answer.entry), .damage = {}, .in_lower_tier = true};
    }
    if (!answer.damage.empty()) {
      add_one(counts.damaged);
      warn_of_damage(name.hex() + " of the read-only cache " + tier->where(), name, answer.damage,
                     "it is passed over");
    }
    if (!answer.trouble.empty()) {
      add_one(answer.refused ? counts.refused : counts.unavailable);
      warn_of_trouble(static_cast<int>(20'000 + i), answer.trouble);
    }
  }
  add_one(misses);
  return found;
}

struct KeyLock::Held {
  std::unique_ptr<LockedByte> byte;
};

KeyLock::KeyLock(KeyLock&& other) noexcept = default;
KeyLock& KeyLock::operator=(KeyLock&& other) noexcept = default;
KeyLock::~KeyLock() = default;
void KeyLock::release() noexcept {
  held_.reset();
}

Store::Store(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<Store> Store::open(StoreOptions options) {
  return StoreWithCalls::open(std::move(options), kRealCalls);
}

Result<Store> StoreWithCalls::open(StoreOptions options, const SystemCalls& calls) {
  if (options.directory.empty() && options.read_only.empty())
    return Error(ErrorCode::invalid_argument,
                 "the cache directory is empty; " + std::string(kCure));
  if (!options.directory.empty())
    if (auto status = make_absolute(options.directory); !status) return status.error();
  for (auto& path : options.read_only)
    if (auto status = make_absolute(path); !status) return status.error();
  std::unique_ptr<RemoteTier> remote;
  if (options.remote.is_on()) {
    KILN_TRY(remote, open_remote(options.remote, options.trust.signers, options.log));
  }
  auto state = std::make_unique<Store::State>(std::move(options), calls);
  state->remote = std::move(remote);
  return Store(std::move(state));
}

const std::filesystem::path& Store::directory() const noexcept {
  return state_->directory;
}

StoreCounters Store::counters() const {
  const auto& state = *state_;
  const auto tier = [](std::string path, bool read_only, const State::Count& count) {
    return TierCounters{.path = std::move(path),
                        .read_only = read_only,
                        .hits = count.hits,
                        .damaged = count.damaged,
                        .refused = count.refused,
                        .unavailable = count.unavailable};
  };
  StoreCounters counters{
      .misses = state.misses,
      .published = state.published,
      .no_space = state.no_space,
      .not_writable = state.not_writable,
      .no_descriptors = state.no_descriptors,
      .io_errors = state.io_errors,
      .trimmed = {.bytes = state.trimmed_bytes, .entries = state.trimmed_entries}};
  if (state.has_directory())
    counters.tiers.push_back(tier(state.root().path(), false, state.count));
  if (state.remote) counters.remote = state.remote->counters();
  for (const auto& below : state.below)
    counters.tiers.push_back(tier(below->tier->where(), true, below->count));
  return counters;
}

Found Store::find(const Digest& name, std::string_view key_text) const {
  return state_->find(name, key_text);
}

Result<Entry> Store::read(const Digest& name) const {
  std::string why = "there is no such entry";
  std::string where = name.hex();
  if (state_->has_directory()) {
    const Place place = entry_place(name);
    Examined there = state_->tree.look_up(place, name, std::nullopt);
    if (there.entry) return *std::move(there.entry);
    if (there.error != 0) why = "it cannot be read: " + state_->root().explain(there.error);
    if (!there.damage.empty()) why = "it is damaged: " + there.damage;
    where = state_->root().path() + '/' + place.path();
  }
  for (const auto& below : state_->below)
    if (auto answer = below->tier->find(name, std::nullopt); answer.entry)
      return *std::move(answer.entry);
  return Error(ErrorCode::io_failed, "cache entry " + where + ": " + why);
}

Result<Found> Store::look_at(const Digest& name) const {
  if (!state_->has_directory()) return Found{};
  const Place place = entry_place(name);
  Examined there = state_->tree.look_up(place, name, std::nullopt);
  if (there.error != 0) return state_->tree.failed_to_read(place.path(), there.error);
  return Found{.entry = std::move(there.entry), .damage = std::move(there.damage)};
}

Fetched Store::fetch(const Digest& name, std::string_view key_text, Wish wish) {
  if (!state_->remote) return {};
  Fetched fetched = state_->remote->fetch(name, key_text, wish);
  // Where it cannot be stored, that has been said, and the entry serves all the same.
  if (fetched.entry && state_->has_directory())
    static_cast<void>(state_
                          ->publish(entry_place(name), name, key_text, fetched.entry->facts(),
                                    fetched.entry->payload())
                          .ok());
  return fetched;
}

Status Store::publish(std::string_view key_text, std::string_view facts,
                      std::span<const std::byte> payload, FleetLease lease) {
  const Digest name = digest_of(key_text);
  auto status = state_->publish(entry_place(name), name, key_text, facts, payload);
  // The fleet gets it even where this host cannot keep it.
  if (state_->remote) state_->remote->publish(key_text, facts, payload, std::move(lease));
  return status;
}

Status Store::send(const Digest& name) {
  if (!state_->remote)
    return Error(ErrorCode::invalid_argument,
                 "there is no remote cache to send to; name one (KILN_REMOTE)");
  KILN_TRY(const Entry entry, read(name));
  return state_->remote->send(entry);
}

bool Store::has_remote() const noexcept {
  return state_->remote != nullptr;
}

Status Store::flush(std::chrono::milliseconds longest, const std::stop_token& stop) {
  return state_->remote ? state_->remote->flush(longest, stop) : Status{};
}

Status Store::discard(const Digest& name) {
  return state_->discard(entry_place(name), name);
}

LockAttempt Store::try_lock(const Digest& name) {
  if (!state_->has_directory()) return {};
  auto attempt = LockedByte::try_lock(state_->root(), lock_offset(name));
  if (attempt.error != 0) attempt.reason = state_->root().explain(attempt.error);
  if (!attempt.reason.empty())
    state_->warn_of_trouble(attempt.error, "cannot lock in the cache " + state_->root().path() +
                                               ": " + attempt.reason + "; going on without, or " +
                                               std::string(kCure));
  LockAttempt result{.outcome = attempt.outcome};
  if (attempt.lock)
    result.lock.held_ = std::make_shared<KeyLock::Held>(KeyLock::Held{std::move(attempt.lock)});
  return result;
}

std::size_t Store::locked(std::size_t most) const {
  if (!state_->has_directory()) return 0;
  const Opened base = state_->root().open();
  return base.fd ? LockWatch(state_->calls(), base.fd.get()).count_held(most) : 0;
}

Result<std::vector<EntryInfo>> Store::list() const {
  if (!state_->has_directory()) return std::vector<EntryInfo>{};
  return state_->tree.list();
}

Result<std::vector<Digest>> Store::names() const {
  KILN_TRY(const auto listed, list());
  std::vector<Digest> names;
  names.reserve(listed.size());
  for (const auto& info : listed) names.push_back(info.name);
  for (const auto& below : state_->below) {
    const auto more = below->tier->names();
    names.insert(names.end(), more.begin(), more.end());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<std::vector<EntryInfo>> Store::verify() const {
  KILN_TRY(auto found, list());
  if (!state_->has_directory()) return found;
  KILN_TRY(auto records, state_->tree.list_records());
  std::move(records.begin(), records.end(), std::back_inserter(found));
  std::vector<EntryInfo> checked;
  for (auto& info : found) {
    const Place place = info.record_kind.empty() ? entry_place(info.name)
                                                 : record_place(info.record_kind, info.name);
    Examined there = state_->tree.look_up(place, info.name, std::nullopt);
    if (there.error != 0) return state_->tree.failed_to_read(place.path(), there.error);
    const bool deleted_meanwhile = !there.entry && there.damage.empty();
    if (deleted_meanwhile) continue;
    info.damage = std::move(there.damage);
    checked.push_back(std::move(info));
  }
  return checked;
}

Status Store::add_record(std::string_view kind, std::string_view text) {
  if (!is_kind(kind))
    return Error(ErrorCode::invalid_argument,
                 "a kind of record is 1 to " + std::to_string(kMaxKindSize) +
                     " lower-case letters, not \"" + std::string(kind) + '"');
  const Digest name = digest_of(text);
  return state_->publish(record_place(kind, name), name, text, {}, {});
}

std::vector<std::string> Store::records(std::string_view kind) const {
  std::vector<std::string> texts;
  if (state_->has_directory())
    state_->tree.for_each_record(kind, [&](const Place& place, const Digest& name,
                                           Examined&& there) {
      if (there.entry) texts.emplace_back(there.entry->key_text());
      if (there.damage.empty()) return;
      // Its text may never come again, and each start would warn of it.
      const Opened folder = state_->root().open_for_writing(place.directory, Durability::relaxed);
      const bool removed =
          folder.fd &&
          remove_if_unchanged(state_->calls(), folder.fd.get(), place.leaf, there.identity).removed;
      state_->warn_of_damage(state_->root().path() + '/' + place.path(), name, there.damage,
                             removed ? "it was removed" : "it is passed over");
    });
  for (const auto& below : state_->below) {
    auto more = below->tier->records(kind);
    std::move(more.begin(), more.end(), std::back_inserter(texts));
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts;
}

}  // namespace kiln::cache
