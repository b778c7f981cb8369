#include "cache/trimming.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/layout.hpp"

namespace kiln::cache {
namespace {

// A stamp further ahead is of a clock that was wrong, and protects nothing.
constexpr std::int64_t kLargestLead = 3600;

std::int64_t wall_clock_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

std::string directory_of(std::size_t shard) {
  return std::string(kEntries) + '/' + shard_digits(shard);
}

}  // namespace

Trimming::Trimming(const Root& root, int base, std::chrono::seconds grace)
    : root_(root),
      base_(base),
      watch_(root.calls(), base),
      now_(wall_clock_seconds()),
      grace_(grace.count()) {}

bool Trimming::is_young(const FileIdentity& identity) const noexcept {
  const std::int64_t age = now_ - identity.modified_seconds;
  return age < grace_ && age > -kLargestLead;
}

void Trimming::sort(std::vector<Candidate>& candidates) {
  const auto order = [](const Candidate& candidate) {
    return std::tuple(candidate.identity.modified_seconds, candidate.identity.modified_nanoseconds,
                      candidate.name);
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](const Candidate& a, const Candidate& b) { return order(a) < order(b); });
}

Trimming::Scan Trimming::scan(std::size_t shard) const {
  const SystemCalls& calls = root_.calls();
  Scan scan;
  const Opened directory =
      open_beneath(calls, base_, directory_of(shard).c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory.fd) {
    scan.error = has_vanished(directory.error) ? 0 : directory.error;
    return scan;
  }
  // From here on nothing that is counted comes or goes.
  ShardTotals kept(calls, directory.fd.get(), shard, root_.trust().group);
  const Listing listing = names_in(calls, directory.fd.get(), ".");
  scan.error = listing.error;
  if (!listing.directory) return scan;
  const std::string digits = shard_digits(shard);
  for (const auto& leaf : listing.names) {
    const auto name = Digest::from_hex(digits + leaf);
    struct stat status {};
    if (!name ||
        calls.fstatat(listing.directory.get(), leaf.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    const Candidate candidate{.name = *name, .identity = identity_of(status)};
    scan.totals.bytes += candidate.bytes();
    ++scan.totals.entries;
    if (is_young(candidate.identity)) continue;
    if (watch_.is_held(lock_offset(*name)))
      ++scan.in_use;
    else
      scan.removable.push_back(candidate);
  }
  if (kept.page().shards[shard] != scan.totals) kept.set(scan.totals);
  sort(scan.removable);
  return scan;
}

Totals Trimming::total_of(const std::vector<Candidate>& candidates) noexcept {
  Totals totals{.entries = candidates.size()};
  for (const Candidate& candidate : candidates) totals.bytes += candidate.bytes();
  return totals;
}

int Trimming::remove(std::vector<Candidate>& victims) const {
  if (victims.empty()) return 0;
  const SystemCalls& calls = root_.calls();
  const std::size_t shard = shard_of(victims.front().name);
  const Opened directory =
      open_beneath(calls, base_, directory_of(shard).c_str(), O_RDONLY | O_DIRECTORY);
  int error = directory.error;
  std::vector<Candidate> removed;
  if (directory.fd) {
    ShardTotals kept(calls, directory.fd.get(), shard, root_.trust().group);
    for (const Candidate& victim : victims) {
      const std::string leaf = victim.name.hex().substr(kShardDigits);
      const Removal removal = remove_if_unchanged(calls, directory.fd.get(), leaf, victim.identity);
      if (removal.removed) removed.push_back(victim);
      if (error == 0) error = removal.error;
    }
    kept.remove(total_of(removed));
  }
  victims = std::move(removed);
  return has_vanished(error) ? 0 : error;
}

}  // namespace kiln::cache
