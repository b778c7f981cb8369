// Keeping to the limits: what a publish removes, and trim() and clear().
#include <time.h>

#include <algorithm>
#include <array>
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

// So few are ordered as one: no more than a shard of a large store holds, or a few of them.
constexpr std::uint64_t kFew = 512;
// After this time no further shard is begun; looking through one takes about as long again.
constexpr std::chrono::milliseconds kLongest{1};
constexpr std::chrono::seconds kLongestRest{10};
constexpr std::chrono::seconds kTrimPatience{2};

std::int64_t seconds_now() noexcept {
  return std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
}

/// Removes victims of many shards, one shard after the other; those that are left alone are taken
/// out of the list. Errno of the first that could not be removed.
int remove_by_shard(const Trimming& trimming, std::vector<Candidate>& victims) {
  std::vector<std::vector<Candidate>> shards(kShards);
  for (const Candidate& victim : victims) shards[shard_of(victim.name)].push_back(victim);
  victims.clear();
  int error = 0;
  for (auto& shard : shards) {
    const int failed = trimming.remove(shard);
    if (error == 0) error = failed;
    victims.insert(victims.end(), shard.begin(), shard.end());
  }
  Trimming::sort(victims);
  return error;
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

/// Of a store with few entries: in the order of their uses over all shards.
Totals trim_few(const Trimming& trimming, const UsagePage& page, std::uint64_t low) {
  std::vector<Candidate> candidates;
  std::uint64_t bytes = 0;
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    if (page.shards[shard] && page.shards[shard]->entries == 0) continue;
    const auto scan = trimming.scan(shard);
    bytes += scan.totals.bytes;
    candidates.insert(candidates.end(), scan.removable.begin(), scan.removable.end());
  }
  Trimming::sort(candidates);
  auto victims = oldest(std::move(candidates), bytes, low);
  remove_by_shard(trimming, victims);
  return Trimming::total_of(victims);
}

/// Of a store with many: the fullest shards that are not yet `seen`, each in the order of its uses.
/// As names are evenly spread, so are uses.
Totals trim_many(const Trimming& trimming, UsagePage page, std::uint64_t limit, std::uint64_t low,
                 std::array<bool, kShards>& seen) {
  Totals removed;
  const auto start = Clock::now();
  do {
    std::size_t fullest = kShards;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      if (seen[shard]) continue;
      if (!page.shards[shard]) {  // who knows
        fullest = shard;
        break;
      }
      if (fullest == kShards || page.shards[shard]->bytes > page.shards[fullest]->bytes)
        fullest = shard;
    }
    if (fullest == kShards) break;
    seen[fullest] = true;
    auto scan = trimming.scan(fullest);
    auto victims = oldest(std::move(scan.removable), scan.totals.bytes, low / kShards);
    trimming.remove(victims);
    const Totals part = Trimming::total_of(victims);
    page.shards[fullest] = Totals{.bytes = scan.totals.bytes - part.bytes,
                                  .entries = scan.totals.entries - part.entries};
    removed.bytes += part.bytes;
    removed.entries += part.entries;
  } while (page.sum().bytes > limit && Clock::now() - start < kLongest);
  return removed;
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

void Store::State::trim_a_little(const UsagePage& page, std::uint64_t limit, std::uint64_t low) {
  const auto now = seconds_now();
  std::array<bool, kShards> skipped{};
  for (std::size_t shard = 0; shard < kShards; ++shard)
    skipped[shard] = now < barren_until[shard].load(std::memory_order_relaxed);
  if (std::all_of(skipped.begin(), skipped.end(), [](bool each) { return each; })) return;
  // Where locks do not work two may trim at once: each removes only what it has seen.
  const auto lock = LockedByte::try_lock(root(), kTrimLockOffset);
  if (lock.outcome == LockOutcome::busy) return;
  const Opened base = root().open();
  if (!base.fd) return;
  const Trimming trimming(root(), base.fd.get(), limits.grace);
  const bool few = page.sum().entries <= kFew;
  auto seen = skipped;
  if (few) seen.fill(true);
  const Totals removed =
      few ? trim_few(trimming, page, low) : trim_many(trimming, page, limit, low, seen);
  trimmed_bytes.fetch_add(removed.bytes, std::memory_order_relaxed);
  trimmed_entries.fetch_add(removed.entries, std::memory_order_relaxed);
  if (removed.entries != 0) return;
  // Looking through the same shards with each publish would find the same.
  const auto rest = now + std::min(limits.grace, kLongestRest).count();
  for (std::size_t shard = 0; shard < kShards; ++shard)
    if (seen[shard] && !skipped[shard]) barren_until[shard].store(rest, std::memory_order_relaxed);
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
  LockedByte::Attempt lock;
  if (!request.dry_run) {
    lock = wait_to_trim(root);
    if (lock.outcome == LockOutcome::busy)
      return Error(ErrorCode::io_failed,
                   "another process trims the cache " + root.path() + "; try again later");
  }

  const Trimming trimming(root, base.fd.get(), request.grace);
  std::vector<Candidate> candidates;
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    const auto scan = trimming.scan(shard);
    if (scan.error != 0)
      return state_->tree.failed_to_read(std::string(kEntries) + '/' + shard_digits(shard),
                                         scan.error);
    candidates.insert(candidates.end(), scan.removable.begin(), scan.removable.end());
    report.left.bytes += scan.totals.bytes;
    report.left.entries += scan.totals.entries;
    report.in_use += scan.in_use;
  }
  Trimming::sort(candidates);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto too_old = [&](const Candidate& candidate) {
    return request.older_than &&
           now.tv_sec - candidate.identity.modified_seconds > request.older_than->count();
  };
  std::uint64_t bytes = report.left.bytes;
  std::size_t count = 0;
  while (count < candidates.size() &&
         ((request.max_bytes && bytes > *request.max_bytes) || too_old(candidates[count])))
    bytes -= std::min(bytes, candidates[count++].bytes());
  candidates.resize(count);

  const int error = request.dry_run ? 0 : remove_by_shard(trimming, candidates);
  if (error != 0)
    return Error(ErrorCode::io_failed, "cannot remove entries of the cache " + root.path() + ": " +
                                           root.explain(error) + "; become the user that it " +
                                           "belongs to, or mount it writable");
  const Totals removed = Trimming::total_of(candidates);
  report.left.bytes -= removed.bytes;
  report.left.entries -= removed.entries;
  for (const Candidate& candidate : candidates)
    report.removed.push_back({.name = candidate.name,
                              .file_bytes = candidate.bytes(),
                              .used_seconds = candidate.identity.modified_seconds});
  return report;
}

}  // namespace kiln::cache
