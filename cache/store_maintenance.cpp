// What an operator does to a store: repairing, clearing, sweeping, measuring.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/directory.hpp"
#include "cache/lock_file.hpp"
#include "cache/store_state.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kNameDigits = 32;
constexpr std::size_t kNumberDigits = 16;  // of what is in quarantine

/// Every directory that files are published in.
int for_each_directory(const SystemCalls& calls, int base, auto&& see) {
  const Listing shards = names_in(calls, base, kEntries);
  for (const auto& shard : shards.names)
    if (is_shard(shard)) see(std::string(kEntries) + '/' + shard);
  const Listing kinds = names_in(calls, base, kRecords);
  for (const auto& kind : kinds.names)
    if (is_kind(kind)) see(std::string(kRecords) + '/' + kind);
  return shards.error != 0 ? shards.error : kinds.error;
}

/// The regular files among `listing`.
Totals add_up(const SystemCalls& calls, const Listing& listing) {
  Totals totals;
  for (const auto& name : listing.names) {
    struct stat status {};
    if (calls.fstatat(listing.directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    totals.bytes += static_cast<std::uint64_t>(status.st_size);
    ++totals.entries;
  }
  return totals;
}

/// Whether the store gives such names in `directory`, of records or of the quarantine.
bool is_ours(const std::string& directory, const std::string& name) {
  if (directory != kQuarantine) return Digest::from_hex(name).has_value();
  const std::string zeros(kNameDigits - kNumberDigits, '0');
  return name.size() == kNameDigits + 1 + kNumberDigits && name[kNameDigits] == '-' &&
         Digest::from_hex(name.substr(0, kNameDigits)) &&
         Digest::from_hex(zeros + name.substr(kNameDigits + 1));
}

/// Moves a file out of the way if it is still the one that was examined, under its name and a
/// number that nobody else has.
Removal put_aside(const Root& root, int directory, const Place& place, const Digest& name,
                  const FileIdentity& examined) {
  const Opened quarantine = root.open_for_writing(kQuarantine, Durability::relaxed);
  if (!quarantine.fd) return {.error = quarantine.error};
  const auto& calls = root.calls();
  struct stat now {};
  if (calls.fstatat(directory, place.leaf.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0)
    return {.error = errno == ENOENT ? 0 : errno};
  if (identity_of(now) != examined) return {};
  const std::string to = name.hex() + dot_name({}).substr(1);
  if (calls.renameat2(directory, place.leaf.c_str(), quarantine.fd.get(), to.c_str(), 0) == 0)
    return {.removed = true};
  return {.error = errno == ENOENT ? 0 : errno};
}

/// Repairs one file if it is still damaged. Errno.
int repair_one(const Root& root, const Place& place, const Digest& name, Repair how) {
  const auto& calls = root.calls();
  const Opened opened = root.open_for_writing(place.directory, Durability::relaxed);
  if (!opened.fd) return has_vanished(opened.error) ? 0 : opened.error;
  const int directory = opened.fd.get();
  const Examination examination{.calls = calls, .trust = root.trust(), .stamps = nullptr};
  const Examined there = examine(examination, directory, place.leaf, name, std::nullopt);
  if (there.error != 0 || there.damage.empty()) return there.error;

  std::optional<ShardTotals> totals;
  if (place.is_entry()) totals.emplace(calls, directory, shard_of(name), root.trust().group);
  const Removal removal = how == Repair::remove
                              ? remove_if_unchanged(calls, directory, place.leaf, there.identity)
                              : put_aside(root, directory, place, name, there.identity);
  if (removal.removed && totals && S_ISREG(there.identity.mode))
    totals->remove({static_cast<std::uint64_t>(there.identity.size), 1});
  return removal.error;
}

}  // namespace

Result<std::vector<EntryInfo>> Store::repair(Repair how) {
  KILN_TRY(auto checked, verify());
  for (const auto& info : checked) {
    if (info.damage.empty()) continue;
    const Place place = info.record_kind.empty() ? entry_place(info.name)
                                                 : record_place(info.record_kind, info.name);
    // Whoever holds the lock is about to put a good one in its place.
    const auto lock = LockedByte::try_lock(state_->root(), lock_offset(info.name));
    if (lock.outcome == LockOutcome::busy) continue;
    if (const int error = repair_one(state_->root(), place, info.name, how); error != 0)
      return Error(ErrorCode::io_failed, "cannot repair " + state_->root().path() + '/' +
                                             place.path() + ": " + state_->root().explain(error) +
                                             "; remove it by hand, or " + std::string(kCure));
  }
  return checked;
}

Result<Totals> Store::clear() {
  KILN_TRY(const auto trimmed, trim({.max_bytes = 0}));
  Totals removed;
  for (const auto& info : trimmed.removed) {
    removed.bytes += info.file_bytes;
    ++removed.entries;
  }
  const Opened base = state_->root().open();
  if (!state_->has_directory() || !base.fd) return removed;
  const auto& calls = state_->calls();
  std::vector<std::string> directories = {kQuarantine};
  for (const auto& kind : names_in(calls, base.fd.get(), kRecords).names)
    if (is_kind(kind)) directories.push_back(std::string(kRecords) + '/' + kind);
  for (const auto& directory : directories) {
    const Listing listing = names_in(calls, base.fd.get(), directory);
    for (const auto& name : listing.names)
      if (is_ours(directory, name) &&
          calls.unlinkat(listing.directory.get(), name.c_str(), 0) != 0 && errno != ENOENT)
        return Error(ErrorCode::io_failed, "cannot remove " + state_->root().path() + '/' +
                                               directory + '/' + name + ": " +
                                               describe_error(errno) + "; remove it by hand");
  }
  return removed;
}

Result<std::size_t> Store::collect_garbage() {
  std::size_t removed = 0;
  if (!state_->has_directory()) return removed;
  const Opened base = state_->root().open();
  if (!base.fd) {
    if (has_vanished(base.error)) return removed;
    return state_->tree.failed_to_read({}, base.error);
  }
  const auto& calls = state_->calls();
  int failed = 0;
  const int error = for_each_directory(calls, base.fd.get(), [&](const std::string& directory) {
    const Sweep sweep = sweep_temporaries(calls, base.fd.get(), directory);
    removed += sweep.removed;
    if (failed == 0) failed = sweep.error;
  });
  if (error != 0) return state_->tree.failed_to_read({}, error);
  if (failed != 0)
    return Error(ErrorCode::io_failed,
                 "cannot remove temporary files of the cache " + state_->root().path() + ": " +
                     state_->root().explain(failed) +
                     "; become the user that it belongs to, or mount it writable");
  return removed;
}

Result<StoreSize> Store::measure() const {
  StoreSize size;
  if (!state_->has_directory()) return size;
  KILN_TRY(const auto entries, list());
  KILN_TRY(const auto records, state_->tree.list_records());
  std::array<bool, kShards> holds_some{};
  for (const auto& info : entries) {
    holds_some[shard_of(info.name)] = true;
    size.entries.bytes += info.file_bytes;
    ++size.entries.entries;
    size.oldest_use = std::min(size.oldest_use.value_or(info.used_seconds), info.used_seconds);
    size.newest_use = std::max(size.newest_use.value_or(info.used_seconds), info.used_seconds);
  }
  for (const auto& info : records) {
    size.records.bytes += info.file_bytes;
    ++size.records.entries;
  }
  const Opened base = state_->root().open();
  if (!base.fd) return size;
  const auto& calls = state_->calls();
  for_each_directory(calls, base.fd.get(), [&](const std::string& directory) {
    const auto found = add_up(calls, names_in(calls, base.fd.get(), directory, DotNames::only));
    size.temporaries.bytes += found.bytes;
    size.temporaries.entries += found.entries;
  });
  size.quarantined = add_up(calls, names_in(calls, base.fd.get(), kQuarantine));
  const UsagePage page = read_usage(calls, base.fd.get());
  // A shard that is not there has nothing in it, counted or not.
  Totals known;
  bool all_known = true;
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    if (page.shards[shard]) {
      known.bytes += page.shards[shard]->bytes;
      known.entries += page.shards[shard]->entries;
    } else if (holds_some[shard]) {
      all_known = false;
    }
  }
  if (all_known) size.kept = known;
  Space space;
  if (calls.free_space(base.fd.get(), &space) == 0) size.free_bytes = space.free_bytes;
  return size;
}

}  // namespace kiln::cache
