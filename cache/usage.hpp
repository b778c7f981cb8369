// How much lies in a store, by shard: a page of totals that each publish and each removal keeps up,
// so that a publish never has to look at other entries. FORMAT.md has its bytes.
//
// A total that is lost or torn is known to be: its check fails, and whoever needs it next counts
// the shard. One that is off, since a process was killed between a file and its total, is put
// right when the shard is next looked through.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "cache/file.hpp"
#include "cache/layout.hpp"
#include "cache/lock_file.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// The totals of all shards; empty for one that was never counted.
struct UsagePage {
  std::array<std::optional<Totals>, kShards> shards{};
  /// Of those that are known.
  Totals sum() const noexcept;
};

/// The page below the root `base`, without a lock; nothing is known where there is none.
UsagePage read_usage(const SystemCalls& calls, int base);

/// What is in the shard whose directory is at hand, by listing it.
Totals count_shard(const SystemCalls& calls, int directory, std::size_t shard);

/// The totals of one shard, locked for as long as it lives: a file appears or goes away, and its
/// total changes, in one. Others wait for it, but not long: then they go on without, and the total
/// is off until it is counted again. Where locks do not work, totals are kept without: one that two
/// have written at once is off until then, too.
///
/// Threads: one at a time.
class ShardTotals {
 public:
  /// `directory` is that of the shard.
  ShardTotals(const SystemCalls& calls, int directory, std::size_t shard,
              std::optional<std::uint32_t> group);

  /// Whether the shard was counted before.
  bool are_known() const noexcept { return page_.shards[shard_].has_value(); }
  /// All totals as they are now.
  const UsagePage& page() const noexcept { return page_; }
  void set(Totals totals);
  void add(const Totals& more);
  void remove(const Totals& less);

 private:
  /// Of the file of the totals; negative where they are not ours to change.
  int file() const noexcept { return lock_ ? lock_->file() : unlocked_.get(); }

  const SystemCalls* calls_;
  std::size_t shard_;
  std::unique_ptr<LockedByte> lock_;
  Fd unlocked_;
  UsagePage page_;
};

}  // namespace kiln::cache
