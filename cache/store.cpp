#include "kiln/cache/store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cache/directory.hpp"
#include "cache/entry_file.hpp"
#include "cache/entry_format.hpp"
#include "cache/file.hpp"
#include "cache/lock_file.hpp"
#include "cache/once_set.hpp"
#include "cache/pending_file.hpp"
#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/log.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {
namespace {

constexpr const char* kEntries = "v1/e";
constexpr const char* kRecords = "v1/r";
constexpr std::size_t kShardDigits = 2;
constexpr std::size_t kMaxKindSize = 64;
constexpr std::string_view kCure =
    "set the cache directory (option cache directory, or KILN_CACHE_DIR) to a writable place";
// Each attempt that fails found the tree deleted, or the name taken, since it looked. That many in
// a row means somebody deletes without pause.
constexpr int kPublishAttempts = 100;

/// Where an entry or a record stands, relative to the root.
struct Place {
  std::string directory;
  std::string leaf;
  std::string path() const { return directory + '/' + leaf; }
};

Place entry_place(const Digest& name) {
  const std::string hex = name.hex();
  return {.directory = std::string(kEntries) + '/' + hex.substr(0, kShardDigits),
          .leaf = hex.substr(kShardDigits)};
}

Place record_place(std::string_view kind, const Digest& name) {
  return {.directory = std::string(kRecords) + '/' + std::string(kind), .leaf = name.hex()};
}

bool is_shard(const std::string& name) {
  constexpr std::size_t kLeafDigits = 30;
  return name.size() == kShardDigits && Digest::from_hex(name + std::string(kLeafDigits, '0'));
}

bool is_kind(std::string_view kind) noexcept {
  return !kind.empty() && kind.size() <= kMaxKindSize &&
         std::all_of(kind.begin(), kind.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

/// `reason`, or what is behind it: "No such file or directory" puzzles whoever sees the link.
std::string explain(const std::string& root, std::string reason) {
  struct stat status {};
  const bool dangling = ::lstat(root.c_str(), &status) == 0 && S_ISLNK(status.st_mode) &&
                        ::stat(root.c_str(), &status) != 0 && errno == ENOENT;
  return dangling ? root + " is a link to a directory that does not exist" : std::move(reason);
}

std::string explain(const std::string& root, int error) {
  std::string reason = describe_error(error);
  return error == ENOENT ? explain(root, std::move(reason)) : reason;
}

/// Why a directory of the store cannot be read, and the cure.
std::string explain_unreadable(int error) {
  if (error == ENOTDIR) return "it or what it lies in is not a directory; remove what is";
  if (error == ELOOP)
    return "it is reached through a link, and none is followed below the cache directory; put a "
           "directory in its place";
  const std::string another =
      "name another cache directory (option cache directory, or KILN_CACHE_DIR)";
  if (error == EACCES || error == EPERM)
    return describe_error(error) + "; become the user that it belongs to, or " + another;
  return describe_error(error) + "; try again, or " + another;
}

}  // namespace

struct Store::State {
  std::filesystem::path directory;
  std::string root;  // directory, as text
  Durability durability = Durability::relaxed;
  LogSink log;
  const SystemCalls* calls = nullptr;

  std::atomic<bool> anonymous_refused = false;  // no O_TMPFILE here
  std::atomic<bool> trouble_reported = false;
  OnceSet<1024> damage_reported;  // by name
  OnceSet<512> swept;             // by digest of the directory's relative path

  void warn(const std::string& message) const {
    if (log) log(LogLevel::warning, message);
  }

  void warn_of_damage(const Place& place, const Digest& name, const std::string& damage) {
    if (damage_reported.first_time(name.low))
      warn("cache entry " + root + '/' + place.path() + " is damaged (" + damage +
           "); it will be made again");
  }

  /// One warning a store, whatever shows first that its directory is of no use.
  void warn_of_trouble(const std::string& what) {
    if (!trouble_reported.exchange(true)) warn(what);
  }

  Error failed_to_store(const Place& place, int error) const {
    return Error(ErrorCode::io_failed, "cannot store " + root + '/' + place.path() + ": " +
                                           explain(root, error) + "; " + std::string(kCure));
  }

  Error failed_to_read(const std::string& path, int error) const {
    return Error(ErrorCode::io_failed, "cannot read the cache " + root +
                                           (path.empty() ? "" : '/' + path) + ": " +
                                           explain_unreadable(error));
  }

  /// Adds the files in `parent` whose name, after `digits`, is that of an entry. Errno.
  int list_files(int base, const std::string& parent, const std::string& digits,
                 std::vector<EntryInfo>& found) const;
  Result<std::vector<EntryInfo>> list_records() const;

  Examined look_up(const Place& place, const Digest& name,
                   std::optional<std::string_view> key_text) {
    const Opened base = open_root(*calls, root);
    if (!base.fd) return {.error = has_vanished(base.error) ? 0 : base.error};
    return examine(*calls, base.fd.get(), place.path(), name, key_text);
  }

  Status publish(const Place& place, const Digest& name, std::string_view key_text,
                 std::string_view facts, std::span<const std::byte> payload);
  struct Attempt {
    int error = 0;
    bool again = false;  // the directory or the name changed under us
  };
  Attempt publish_once(const Place& place, const Digest& name, std::string_view key_text,
                       std::span<const std::byte> head, std::span<const std::byte> payload);
  void sweep_once(const Place& place, int shard);
};

Status Store::State::publish(const Place& place, const Digest& name, std::string_view key_text,
                             std::string_view facts, std::span<const std::byte> payload) {
  if (const auto why = limit_exceeded(key_text.size(), facts.size(), payload.size());
      !why.empty()) {
    Error failure(ErrorCode::invalid_argument, "cannot store a " + why + " bytes; make it smaller");
    warn_of_trouble(failure.message());
    return failure;
  }
  const std::vector<std::byte> head = encode_head(key_text, facts, payload);
  Attempt last{.again = true};
  for (int attempt = 0; attempt < kPublishAttempts && last.again; ++attempt)
    last = publish_once(place, name, key_text, head, payload);
  if (last.error == 0) return {};
  auto failure = failed_to_store(place, last.error);
  warn_of_trouble(failure.message());
  return failure;
}

Store::State::Attempt Store::State::publish_once(const Place& place, const Digest& name,
                                                 std::string_view key_text,
                                                 std::span<const std::byte> head,
                                                 std::span<const std::byte> payload) {
  const Opened opened = open_for_writing(*calls, root, place.directory, durability);
  if (!opened.fd) return {.error = opened.error, .again = has_vanished(opened.error)};
  const int shard = opened.fd.get();

  const Examined there = examine(*calls, shard, place.leaf, name, key_text, durability);
  if (there.error != 0) return {.error = there.error};
  if (there.entry) return {};
  if (!there.damage.empty()) {
    warn_of_damage(place, name, there.damage);
    const int error = remove_if_unchanged(*calls, shard, place.leaf, there.identity);
    if (error != 0) return {.error = error};
  }

  const auto form = anonymous_refused ? PendingFile::Form::named : PendingFile::Form::anonymous;
  auto pending = PendingFile::create(*calls, shard, form, head, payload, durability);
  auto outcome = PendingFile::Published{pending.error, pending.form_refused};
  if (pending.file) outcome = pending.file->publish_as(place.leaf);
  if (outcome.form_refused) anonymous_refused = true;
  const int error = outcome.error;
  if (error != 0)
    return {.error = error,
            .again = outcome.form_refused || has_vanished(error) || error == EEXIST};
  sweep_once(place, shard);
  return {.error = sync_directory(*calls, shard, durability)};
}

int Store::State::list_files(int base, const std::string& parent, const std::string& digits,
                             std::vector<EntryInfo>& found) const {
  const Listing listing = names_in(*calls, base, parent);
  for (const auto& leaf : listing.names) {
    const auto name = Digest::from_hex(digits + leaf);
    if (!name) continue;
    struct stat status {};
    const std::string path = parent + '/' + leaf;
    if (::fstatat(base, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      found.push_back({.name = *name, .file_bytes = static_cast<std::uint64_t>(status.st_size)});
    else if (!has_vanished(errno))
      return errno;
  }
  return listing.error;
}

Result<std::vector<EntryInfo>> Store::State::list_records() const {
  std::vector<EntryInfo> found;
  const Opened base = open_root(*calls, root);
  if (!base.fd) {
    if (has_vanished(base.error)) return found;
    return failed_to_read({}, base.error);
  }
  const Listing kinds = names_in(*calls, base.fd.get(), kRecords);
  if (kinds.error != 0) return failed_to_read(kRecords, kinds.error);
  for (const auto& kind : kinds.names) {
    if (!is_kind(kind)) continue;
    const auto first = static_cast<std::ptrdiff_t>(found.size());
    const std::string parent = std::string(kRecords) + '/' + kind;
    if (const int error = list_files(base.fd.get(), parent, {}, found); error != 0)
      return failed_to_read(parent, error);
    std::for_each(found.begin() + first, found.end(),
                  [&](EntryInfo& info) { info.record_kind = kind; });
  }
  return found;
}

void Store::State::sweep_once(const Place& place, int shard) {
  if (swept.first_time(digest_of(place.directory).low)) sweep_temporaries(*calls, shard);
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
  if (options.directory.empty())
    return Error(ErrorCode::invalid_argument,
                 "the cache directory is empty; " + std::string(kCure));
  std::error_code failure;
  // Once and for all: the working directory may change later.
  auto directory = std::filesystem::absolute(options.directory, failure);
  if (failure)
    return Error(ErrorCode::invalid_argument,
                 "the cache directory " + options.directory.string() +
                     " is relative to a working directory that is gone; give an absolute path");
  auto state = std::make_unique<Store::State>();
  state->root = directory.string();
  state->directory = std::move(directory);
  state->durability = options.durable ? Durability::durable : Durability::relaxed;
  state->log = std::move(options.log);
  state->calls = &calls;
  return Store(std::move(state));
}

const std::filesystem::path& Store::directory() const noexcept {
  return state_->directory;
}

Found Store::find(const Digest& name, std::string_view key_text) const {
  const Place place = entry_place(name);
  Examined there = state_->look_up(place, name, key_text);
  if (!there.damage.empty()) state_->warn_of_damage(place, name, there.damage);
  if (there.error != 0)
    state_->warn_of_trouble("cannot read the cache " + state_->root + ": " +
                            describe_error(there.error) + "; going on without, or " +
                            std::string(kCure));
  return {.entry = std::move(there.entry), .damage = std::move(there.damage)};
}

Result<Entry> Store::read(const Digest& name) const {
  const Place place = entry_place(name);
  Examined there = state_->look_up(place, name, std::nullopt);
  if (there.entry) return *std::move(there.entry);
  std::string why = "there is no such entry";
  if (there.error != 0) why = "it cannot be read: " + describe_error(there.error);
  if (!there.damage.empty()) why = "it is damaged: " + there.damage;
  return Error(ErrorCode::io_failed,
               "cache entry " + state_->root + '/' + place.path() + ": " + why);
}

Result<Found> Store::look_at(const Digest& name) const {
  const Place place = entry_place(name);
  Examined there = state_->look_up(place, name, std::nullopt);
  if (there.error != 0) return state_->failed_to_read(place.path(), there.error);
  return Found{.entry = std::move(there.entry), .damage = std::move(there.damage)};
}

Status Store::publish(std::string_view key_text, std::string_view facts,
                      std::span<const std::byte> payload) {
  const Digest name = digest_of(key_text);
  return state_->publish(entry_place(name), name, key_text, facts, payload);
}

Status Store::discard(const Digest& name) {
  const Place place = entry_place(name);
  const Opened opened =
      open_for_writing(*state_->calls, state_->root, place.directory, state_->durability);
  int error = opened.error;
  if (opened.fd) {
    const int shard = opened.fd.get();
    const Examined there = examine(*state_->calls, shard, place.leaf, name, std::nullopt);
    const bool absent = !there.entry && there.damage.empty();
    error = there.error;
    if (error == 0 && !absent)
      error = remove_if_unchanged(*state_->calls, shard, place.leaf, there.identity);
  }
  if (error == 0) return {};
  return Error(ErrorCode::io_failed, "cannot remove " + state_->root + '/' + place.path() + ": " +
                                         explain(state_->root, error) + "; " + std::string(kCure));
}

LockAttempt Store::try_lock(const Digest& name) {
  auto attempt = LockedByte::try_lock(*state_->calls, state_->root, name.low);
  if (!attempt.reason.empty())
    state_->warn_of_trouble("cannot lock in the cache " + state_->root + ": " +
                            explain(state_->root, attempt.reason) + "; going on without, or " +
                            std::string(kCure));
  LockAttempt result{.outcome = attempt.outcome};
  if (attempt.lock)
    result.lock.held_ = std::make_shared<KeyLock::Held>(KeyLock::Held{std::move(attempt.lock)});
  return result;
}

Result<std::vector<EntryInfo>> Store::list() const {
  std::vector<EntryInfo> entries;
  const Opened base = open_root(*state_->calls, state_->root);
  if (!base.fd) {
    if (has_vanished(base.error)) return entries;
    return state_->failed_to_read({}, base.error);
  }
  const Listing shards = names_in(*state_->calls, base.fd.get(), kEntries);
  if (shards.error != 0) return state_->failed_to_read(kEntries, shards.error);
  for (const auto& shard : shards.names) {
    if (!is_shard(shard)) continue;
    const std::string directory = std::string(kEntries) + '/' + shard;
    if (const int error = state_->list_files(base.fd.get(), directory, shard, entries); error != 0)
      return state_->failed_to_read(directory, error);
  }
  return entries;
}

Result<std::vector<EntryInfo>> Store::verify() const {
  KILN_TRY(auto found, list());
  KILN_TRY(auto records, state_->list_records());
  std::move(records.begin(), records.end(), std::back_inserter(found));
  std::vector<EntryInfo> checked;
  for (auto& info : found) {
    const Place place = info.record_kind.empty() ? entry_place(info.name)
                                                 : record_place(info.record_kind, info.name);
    Examined there = state_->look_up(place, info.name, std::nullopt);
    if (there.error != 0) return state_->failed_to_read(place.path(), there.error);
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
  const Opened base = open_root(*state_->calls, state_->root);
  if (!is_kind(kind) || !base.fd) return texts;
  const std::string directory = std::string(kRecords) + '/' + std::string(kind);
  // Records are an aid: ones that cannot be listed are as good as none.
  for (const auto& leaf : names_in(*state_->calls, base.fd.get(), directory).names) {
    const auto name = Digest::from_hex(leaf);
    if (!name) continue;
    const Place place = record_place(kind, *name);
    const Examined there = state_->look_up(place, *name, std::nullopt);
    if (!there.damage.empty()) state_->warn_of_damage(place, *name, there.damage);
    if (there.entry) texts.emplace_back(there.entry->key_text());
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

}  // namespace kiln::cache
