// Looking through shards and removing what is oldest: shared by the few entries that a publish
// removes and by a whole trim.
//
// Threads: one at a time. Lifetime: `root` outlives it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/lock_file.hpp"
#include "cache/root.hpp"
#include "cache/usage.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// An entry's file, as it was seen.
struct Candidate {
  Digest name{};
  FileIdentity identity{};
  std::uint64_t bytes() const noexcept { return static_cast<std::uint64_t>(identity.size); }
};

class Trimming {
 public:
  /// `base` is the root, open.
  Trimming(const Root& root, int base, std::chrono::seconds grace);

  struct Scan {
    std::vector<Candidate> removable{};  ///< oldest use first
    Totals totals{};
    std::size_t in_use = 0;
    int error = 0;
  };
  /// Looks through one shard, and puts its kept total right.
  Scan scan(std::size_t shard) const;

  /// Removes `victims`, all of one shard, that are still as they were seen; the others are taken
  /// out of the list. Errno of the first that could not be removed, or of all.
  int remove(std::vector<Candidate>& victims) const;

  static Totals total_of(const std::vector<Candidate>& candidates) noexcept;
  /// Orders by use, longest ago first.
  static void sort(std::vector<Candidate>& candidates);

 private:
  bool is_young(const FileIdentity& identity) const noexcept;

  const Root& root_;
  int base_;
  LockWatch watch_;
  std::int64_t now_;
  std::int64_t grace_;
};

}  // namespace kiln::cache
