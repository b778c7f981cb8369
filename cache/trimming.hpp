// Looking through shards and removing what is oldest: shared by the few entries that a publish
// removes and by a whole trim.
//
// Threads: one at a time. Lifetime: `root` outlives it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/lock_file.hpp"
#include "cache/root.hpp"
#include "cache/system_calls.hpp"
#include "cache/usage.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// An entry's file, as it was seen.
struct Candidate {
  Digest name{};
  FileIdentity identity{};
  std::uint64_t bytes() const noexcept { return static_cast<std::uint64_t>(identity.size); }
};

/// How many files a caller has patience for: as many as fit in a time, and a few in any case, so
/// that a slow disk delays nobody for long and yet is trimmed. Threads: one at a time.
class Patience {
 public:
  /// Without end.
  Patience() noexcept = default;
  Patience(const SystemCalls& calls, std::chrono::nanoseconds longest, int least) noexcept
      : calls_(&calls), end_(steady_nanoseconds(calls) + longest.count()), least_(least) {}

  bool lasts() const noexcept {
    return calls_ == nullptr || least_ > 0 || steady_nanoseconds(*calls_) < end_;
  }
  /// One more file is done.
  void spend() noexcept { --least_; }

 private:
  const SystemCalls* calls_ = nullptr;
  std::int64_t end_ = 0;
  std::int64_t least_ = 0;
};

class Trimming {
 public:
  /// `base` is the root, open. `only_looks`: scan() writes nothing.
  Trimming(const Root& root, int base, std::chrono::seconds grace, bool only_looks = false);

  struct Scan {
    std::vector<Candidate> removable{};
    Totals totals{};  ///< of what was looked at
    std::size_t in_use = 0;
    int error = 0;
  };
  /// Looks through the shard of `from`, beginning at that name. One that is looked at as a whole
  /// has its kept total put right, unless this only looks.
  Scan scan(const Digest& from, Patience& patience) const;

  /// Removes those of `victims` that are still as they were seen, one shard after the other; the
  /// others are taken out of the list. Errno of the first that could not be removed.
  int remove(std::vector<Candidate>& victims, Patience& patience) const;

  static Totals total_of(const std::vector<Candidate>& candidates) noexcept;
  /// Orders by use, longest ago first.
  void sort(std::vector<Candidate>& candidates) const;

 private:
  bool is_of_wrong_clock(const FileIdentity& identity) const noexcept;
  bool is_young(const FileIdentity& identity) const noexcept;
  int remove_of_shard(std::span<const Candidate> victims, Patience& patience,
                      std::vector<Candidate>& removed) const;

  const Root& root_;
  int base_;
  LockWatch watch_;
  std::int64_t now_;
  std::int64_t grace_;
  bool only_looks_;
};

}  // namespace kiln::cache
