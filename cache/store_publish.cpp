// Publishing and discarding: the members of Store::State that write.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry_file.hpp"
#include "cache/entry_format.hpp"
#include "cache/pending_file.hpp"
#include "cache/store_state.hpp"

namespace kiln::cache {
namespace {

// Each attempt that fails found the tree deleted, or the name taken, since it looked. That many in
// a row means somebody deletes without pause.
constexpr int kPublishAttempts = 100;
constexpr std::uint64_t kDefaultFloorBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kFloorPart = 100;  // of the file system, at most

std::uint64_t floor_of(const Limits& limits, const Space& space) noexcept {
  return limits.min_free_bytes.value_or(
      std::min(kDefaultFloorBytes, space.total_bytes / kFloorPart));
}

/// What can be done about `error` before another directory is named; ends with "or ".
std::string_view first_cure(int error) noexcept {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "make room, lower the limit of the cache (KILN_CACHE_MAX_BYTES), or ";
    case kBelowFloor:
      return "make room, lower the floor (KILN_CACHE_MIN_FREE_BYTES), or ";
    case EROFS:
      return "name it as read-only (KILN_CACHE_READONLY), and ";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n), or ";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f), or ";
    case EIO:
      return "look at the disk, or ";
    default:
      return {};
  }
}

}  // namespace

void Store::State::count_failure(int error) {
  auto* counter = &io_errors;
  if (error == ENOSPC || error == EDQUOT || error == kBelowFloor) counter = &no_space;
  if (error == EROFS || error == EACCES || error == EPERM || error == kRefused)
    counter = &not_writable;
  if (error == EMFILE || error == ENFILE) counter = &no_descriptors;
  counter->fetch_add(1, std::memory_order_relaxed);
  if (error == kRefused) count.refused.fetch_add(1, std::memory_order_relaxed);
}

Error Store::State::failed_to_store(const Place& place, int error) {
  const std::string why =
      error == kBelowFloor ? "its file system has little free space left" : root().explain(error);
  return Error(ErrorCode::io_failed, "cannot store " + root().path() + '/' + place.path() + ": " +
                                         why + "; " + std::string(first_cure(error)) +
                                         std::string(kCure));
}

Status Store::State::publish(const Place& place, const Digest& name, std::string_view key_text,
                             std::string_view facts, std::span<const std::byte> payload) {
  if (!has_directory())
    return Error(
        ErrorCode::io_failed,
        "nothing can be stored, since only read-only caches are named; " + std::string(kCure));
  if (const auto why = limit_exceeded(key_text.size(), facts.size(), payload.size());
      !why.empty()) {
    Error failure(ErrorCode::invalid_argument, "cannot store a " + why + " bytes; make it smaller");
    warn_of_trouble(E2BIG, failure.message());
    return failure;
  }
  const std::vector<std::byte> head = encode_head(key_text, facts, payload);
  Attempt last{.again = true};
  for (int attempt = 0; attempt < kPublishAttempts && last.again; ++attempt)
    last = publish_once(place, name, key_text, head, payload);
  // Quotas, and file systems that run out of files rather than of bytes, tell it in no other way.
  const bool is_full = !last.made && (last.error == ENOSPC || last.error == EDQUOT);
  if (is_full && make_room(name, head.size() + payload.size()) == 0)
    last = publish_once(place, name, key_text, head, payload);
  if (last.made) {
    published.fetch_add(1, std::memory_order_relaxed);
    if (limits.max_bytes != 0 && last.page.sum().bytes > limits.max_bytes)
      trim_a_little(name, last.page, limits.max_bytes);
  }
  // Another has published it, and its file does not show yet, as on network file systems that
  // remember for a while what was not there.
  if (last.again && last.error == EEXIST) last.error = 0;
  if (last.error == 0) return {};
  count_failure(last.error);
  auto failure = failed_to_store(place, last.error);
  warn_of_trouble(last.error, failure.message());
  return failure;
}

int Store::State::make_room(const Digest& name, std::uint64_t bytes) {
  const Opened base = root().open();
  if (!base.fd) return base.error;
  const UsagePage page = read_usage(calls(), base.fd.get());
  const auto held = page.sum().bytes;
  trim_a_little(name, page, held - std::min(held, bytes));
  return 0;
}

int Store::State::check_space(int folder, const Digest& name, std::uint64_t bytes) {
  if (limits.min_free_bytes == std::uint64_t{0}) return 0;
  Space space;
  // Where it cannot be asked, the write itself will tell.
  if (calls().free_space(folder, &space) != 0) return 0;
  const auto floor = floor_of(limits, space);
  const auto wanted = floor + std::min(bytes, UINT64_MAX - floor);
  if (space.free_bytes >= wanted) return 0;
  // What is old here makes room before anything is refused.
  if (const int error = make_room(name, wanted - space.free_bytes); error != 0) return error;
  return calls().free_space(folder, &space) == 0 && space.free_bytes < wanted ? kBelowFloor : 0;
}

Store::State::Attempt Store::State::publish_once(const Place& place, const Digest& name,
                                                 std::string_view key_text,
                                                 std::span<const std::byte> head,
                                                 std::span<const std::byte> payload) {
  const Opened opened = root().open_for_writing(place.directory, durability);
  if (!opened.fd) return {.error = opened.error, .again = has_vanished(opened.error)};
  const int folder = opened.fd.get();

  const Examination how{
      .calls = calls(), .trust = root().trust(), .durability = durability, .stamps = nullptr};
  const Examined there = examine(how, folder, place.leaf, name, key_text);
  if (there.error != 0) return {.error = there.error};
  if (there.entry) return {};
  if (!there.damage.empty()) {
    count.damaged.fetch_add(1, std::memory_order_relaxed);
    warn_of_damage(root().path() + '/' + place.path(), name, there.damage, "it will be made again");
  }
  const std::uint64_t bytes = head.size() + payload.size();
  if (const int error = check_space(folder, name, bytes); error != 0) return {.error = error};

  const auto form = anonymous_refused ? PendingFile::Form::named : PendingFile::Form::anonymous;
  auto pending =
      PendingFile::create(calls(), folder, form, head, payload, durability, root().trust().group);
  if (!pending.file && !pending.form_refused)
    return {.error = pending.error, .again = has_vanished(pending.error)};

  Attempt attempt;
  auto outcome = PendingFile::Published{pending.error, pending.form_refused};
  if (pending.file) {
    // Until the end of this block the shard's total is ours.
    std::optional<ShardTotals> totals;
    if (place.is_entry()) totals.emplace(calls(), folder, shard_of(name), root().trust().group);
    if (!there.damage.empty()) {
      const Removal removal = remove_if_unchanged(calls(), folder, place.leaf, there.identity);
      if (removal.error != 0) return {.error = removal.error};
      if (removal.removed && totals && S_ISREG(there.identity.mode))
        totals->remove({static_cast<std::uint64_t>(there.identity.size), 1});
    }
    outcome = pending.file->publish_as(place.leaf);
    attempt.made = outcome.error == 0;
    if (attempt.made && totals) {
      if (totals->are_known())
        totals->add({bytes, 1});
      else
        totals->set(count_shard(calls(), folder, shard_of(name)));
      attempt.page = totals->page();
    }
  }
  if (outcome.form_refused) anonymous_refused = true;
  attempt.error = outcome.error;
  attempt.again = outcome.error != 0 &&
                  (outcome.form_refused || has_vanished(outcome.error) || outcome.error == EEXIST);
  if (!attempt.made) return attempt;
  if (swept.first_time(digest_of(place.directory).low)) sweep_temporaries(calls(), folder, ".");
  attempt.error = sync_directory(calls(), folder, durability);
  return attempt;
}

Status Store::State::discard(const Place& place, const Digest& name) {
  if (!has_directory()) return {};
  const Opened opened = root().open_for_writing(place.directory, durability);
  int error = opened.error;
  if (opened.fd) {
    const int folder = opened.fd.get();
    const Examination how{.calls = calls(), .trust = root().trust(), .stamps = nullptr};
    const Examined there = examine(how, folder, place.leaf, name, std::nullopt);
    const bool absent = !there.entry && there.damage.empty();
    error = there.error;
    if (error == 0 && !absent) {
      ShardTotals totals(calls(), folder, shard_of(name), root().trust().group);
      const Removal removal = remove_if_unchanged(calls(), folder, place.leaf, there.identity);
      if (removal.removed && S_ISREG(there.identity.mode))
        totals.remove({static_cast<std::uint64_t>(there.identity.size), 1});
      error = removal.error;
    }
  }
  if (error == 0) return {};
  return Error(ErrorCode::io_failed, "cannot remove " + root().path() + '/' + place.path() + ": " +
                                         root().explain(error) + "; " + std::string(kCure));
}

}  // namespace kiln::cache
