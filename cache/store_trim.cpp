// Keeping to the limits: what a publish removes, and trim() and clear().
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/lock_file.hpp"
#include "cache/store_state.hpp"
#include "cache/trimming.hpp"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

// A publish that trims orders so many entries by their uses: as names are evenly spread, so are
// uses, and a part stands for the whole.
constexpr std::uint64_t kEnough = 256;
constexpr double kLowMark = 0.9;  // of the limit: what is left of it
// It looks for as long as this, and removes for as long again; that few are done in any case.
constexpr std::chrono::milliseconds kLongest{1};
constexpr int kFewestLookedAt = 8;
constexpr int kFewestRemoved = 2;
constexpr std::chrono::seconds kLongestRest{10};
constexpr std::chrono::seconds kTrimPatience{2};

std::int64_t seconds_now() noexcept {
  return std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
}

/// The first name of the shard that stands `steps` after that of `name`; `name` itself for none.
Digest from_shard_after(const Digest& name, std::size_t steps) noexcept {
  if (steps == 0) return name;
  return {.high = std::uint64_t{(shard_of(name) + steps) % kShards} << 56, .low = 0};
}

/// The first ones, until no more than `goal` of `bytes` is left.
std::vector<Candidate> oldest(std::vector<Candidate> candidates, std::uint64_t bytes,
                              std::uint64_t goal) {
  std::size_t count = 0;
  while (count < candidates.size() && bytes > goal)
    bytes -= std::min(bytes, candidates[count++].bytes());
  candidates.resize(count);
  return candidates;
}

/// The lock of trimming, as soon as the one who has it is done.
LockedByte::Attempt wait_to_trim(const Root& root) {
  const auto end = Clock::now() + kTrimPatience;
  for (;;) {
    auto attempt = LockedByte::try_lock(root, kTrimLockOffset);
    if (attempt.outcome != LockOutcome::busy || Clock::now() >= end) return attempt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

void Store::State::trim_a_little(const Digest& name, const UsagePage& page, std::uint64_t limit) {
  const std::uint64_t held = page.sum().bytes;
  const auto now = seconds_now();
  std::vector<Digest> parts;  // shards worth looking through, first that of `name`
  for (std::size_t step = 0; step < kShards; ++step) {
    const Digest from = from_shard_after(name, step);
    const auto& totals = page.shards[shard_of(from)];
    if (now >= barren_until[shard_of(from)].load(std::memory_order_relaxed) &&
        (!totals || totals->entries != 0))
      parts.push_back(from);
  }
  if (held <= limit || parts.empty()) return;
  // Where locks do not work two may trim at once: each removes only what it has seen.
  const auto lock = LockedByte::try_lock(root(), kTrimLockOffset);
  if (lock.outcome == LockOutcome::busy) return;
  const Opened base = root().open();
  if (!base.fd) return;

  const Trimming trimming(root(), base.fd.get(), limits.grace);
  const auto kept_of = [&](std::uint64_t bytes) {
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * kLowMark *
                                      static_cast<double>(limit) / static_cast<double>(held));
  };
  Patience looking(calls(), kLongest, kFewestLookedAt);
  std::vector<Candidate> candidates;
  Totals seen;
  std::size_t looked_through = 0;
  while (looked_through < parts.size() && looking.lasts() &&
         (seen.entries < kEnough || seen.bytes - kept_of(seen.bytes) < held - limit)) {
    const auto scan = trimming.scan(parts[looked_through++], looking);
    seen.bytes += scan.totals.bytes;
    seen.entries += scan.totals.entries;
    candidates.insert(candidates.end(), scan.removable.begin(), scan.removable.end());
  }
  trimming.sort(candidates);
  auto victims = oldest(std::move(candidates), seen.bytes, kept_of(seen.bytes));
  Patience removing(calls(), kLongest, kFewestRemoved);
  trimming.remove(victims, removing);
  trimmed_bytes.fetch_add(Trimming::total_of(victims).bytes, std::memory_order_relaxed);
  trimmed_entries.fetch_add(victims.size(), std::memory_order_relaxed);
  if (!victims.empty()) return;
  // Looking through the same shards with each publish would find the same.
  const auto rest = now + std::min(limits.grace, kLongestRest).count();
  for (std::size_t i = 0; i < looked_through; ++i)
    barren_until[shard_of(parts[i])].store(rest, std::memory_order_relaxed);
}

Result<TrimReport> Store::trim(const TrimRequest& request) {
  TrimReport report;
  if (!state_->has_directory()) return report;
  const Root& root = state_->root();
  const Opened base = root.open();
  if (!base.fd) {
    if (has_vanished(base.error)) return report;
    return state_->tree.failed_to_read({}, base.error);
  }
  // What is no store yet, or something else altogether, is not made one by the lock.
  const Opened entries =
      open_beneath(root.calls(), base.fd.get(), kEntries, O_RDONLY | O_DIRECTORY);
  if (has_vanished(entries.error)) return report;
  LockedByte::Attempt lock;
  if (!request.dry_run) {
    lock = wait_to_trim(root);
    if (lock.outcome == LockOutcome::busy)
      return Error(ErrorCode::io_failed,
                   "another process trims the cache " + root.path() + "; try again later");
  }

  const Trimming trimming(root, base.fd.get(), request.grace, request.dry_run);
  std::vector<Candidate> candidates;
  Patience endless;
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    const auto scan = trimming.scan({.high = std::uint64_t{shard} << 56, .low = 0}, endless);
    if (scan.error != 0)
      return state_->tree.failed_to_read(std::string(kEntries) + '/' + shard_digits(shard),
                                         scan.error);
    candidates.insert(candidates.end(), scan.removable.begin(), scan.removable.end());
    report.left.bytes += scan.totals.bytes;
    report.left.entries += scan.totals.entries;
    report.in_use += scan.in_use;
  }
  trimming.sort(candidates);
  const auto now = wall_seconds(root.calls());
  const auto too_old = [&](const Candidate& candidate) {
    return request.older_than &&
           now - candidate.identity.modified_seconds > request.older_than->count();
  };
  std::uint64_t bytes = report.left.bytes;
  std::vector<Candidate> victims;
  for (const Candidate& candidate : candidates) {
    // Not only the first ones are too old: before them stand those of a wrong clock.
    if (!(request.max_bytes && bytes > *request.max_bytes) && !too_old(candidate)) continue;
    bytes -= std::min(bytes, candidate.bytes());
    victims.push_back(candidate);
  }

  const int error = request.dry_run ? 0 : trimming.remove(victims, endless);
  if (error != 0)
    return Error(ErrorCode::io_failed, "cannot remove entries of the cache " + root.path() + ": " +
                                           root.explain(error) + "; become the user that it " +
                                           "belongs to, or mount it writable");
  trimming.sort(victims);
  const Totals removed = Trimming::total_of(victims);
  report.left.bytes -= removed.bytes;
  report.left.entries -= removed.entries;
  for (const Candidate& candidate : victims)
    report.removed.push_back({.name = candidate.name,
                              .file_bytes = candidate.bytes(),
                              .used_seconds = candidate.identity.modified_seconds});
  return report;
}

}  // namespace kiln::cache
