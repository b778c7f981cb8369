#include "cache/trimming.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/layout.hpp"

namespace kiln::cache {
namespace {

constexpr std::int64_t kLargestLead = 3600;

std::string directory_of(std::size_t shard) {
  return std::string(kEntries) + '/' + shard_digits(shard);
}

}  // namespace

Trimming::Trimming(const Root& root, int base, std::chrono::seconds grace, bool only_looks)
    : root_(root),
      base_(base),
      watch_(root.calls(), base),
      now_(wall_seconds(root.calls())),
      grace_(grace.count()),
      only_looks_(only_looks) {}

// A stamp far ahead tells nothing of the last use, and protects nothing.
bool Trimming::is_of_wrong_clock(const FileIdentity& identity) const noexcept {
  return identity.modified_seconds - now_ > kLargestLead;
}

bool Trimming::is_young(const FileIdentity& identity) const noexcept {
  return grace_ > 0 && now_ - identity.modified_seconds < grace_ && !is_of_wrong_clock(identity);
}

void Trimming::sort(std::vector<Candidate>& candidates) const {
  const auto order = [this](const Candidate& candidate) {
    return std::tuple(!is_of_wrong_clock(candidate.identity), candidate.identity.modified_seconds,
                      candidate.identity.modified_nanoseconds, candidate.name);
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](const Candidate& a, const Candidate& b) { return order(a) < order(b); });
}

Trimming::Scan Trimming::scan(const Digest& from, Patience& patience) const {
  const SystemCalls& calls = root_.calls();
  const std::size_t shard = shard_of(from);
  Scan scan;
  const Opened directory =
      open_beneath(calls, base_, directory_of(shard).c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory.fd) {
    scan.error = has_vanished(directory.error) ? 0 : directory.error;
    return scan;
  }
  // From here on nothing that is counted comes or goes.
  std::optional<ShardTotals> kept;
  if (!only_looks_) kept.emplace(calls, directory.fd.get(), shard, root_.trust().group);
  Listing listing = names_in(calls, directory.fd.get(), ".");
  scan.error = listing.error;
  if (!listing.directory) return scan;
  // Each call begins elsewhere, so that patience that ends early never spares the same ones.
  auto& leaves = listing.names;
  std::rotate(leaves.begin(),
              std::lower_bound(leaves.begin(), leaves.end(), from.hex().substr(kShardDigits)),
              leaves.end());
  const std::string digits = shard_digits(shard);
  for (const auto& leaf : leaves) {
    if (!patience.lasts()) return scan;
    patience.spend();
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
  if (kept && kept->page().shards[shard] != scan.totals) kept->set(scan.totals);
  return scan;
}

Totals Trimming::total_of(const std::vector<Candidate>& candidates) noexcept {
  Totals totals{.entries = candidates.size()};
  for (const Candidate& candidate : candidates) totals.bytes += candidate.bytes();
  return totals;
}

int Trimming::remove(std::vector<Candidate>& victims, Patience& patience) const {
  const auto by_shard = [](const Candidate& a, const Candidate& b) {
    return shard_of(a.name) < shard_of(b.name);
  };
  std::stable_sort(victims.begin(), victims.end(), by_shard);
  std::vector<Candidate> removed;
  int error = 0;
  for (auto first = victims.begin(); first != victims.end();) {
    const auto last = std::upper_bound(first, victims.end(), *first, by_shard);
    const int failed = remove_of_shard({first, last}, patience, removed);
    if (error == 0) error = failed;
    first = last;
  }
  victims = std::move(removed);
  return error;
}

int Trimming::remove_of_shard(std::span<const Candidate> victims, Patience& patience,
                              std::vector<Candidate>& removed) const {
  const SystemCalls& calls = root_.calls();
  const std::size_t shard = shard_of(victims.front().name);
  const Opened directory =
      open_beneath(calls, base_, directory_of(shard).c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory.fd) return has_vanished(directory.error) ? 0 : directory.error;
  ShardTotals kept(calls, directory.fd.get(), shard, root_.trust().group);
  Totals gone;
  int error = 0;
  for (const Candidate& victim : victims) {
    if (!patience.lasts()) break;
    patience.spend();
    const std::string leaf = victim.name.hex().substr(kShardDigits);
    const Removal removal = remove_if_unchanged(calls, directory.fd.get(), leaf, victim.identity);
    if (removal.removed) {
      removed.push_back(victim);
      gone.bytes += victim.bytes();
      ++gone.entries;
    }
    if (error == 0) error = removal.error;
  }
  kept.remove(gone);
  return has_vanished(error) ? 0 : error;
}

}  // namespace kiln::cache
