// How many splits a call's keys are worth: the planner's arithmetic, which its reasons tell of.
//
// Threads: pure functions.
#pragma once

#include <optional>

#include "kernel_src/kimi_k3_mla/plan.hpp"

namespace kiln::kernels::kimi_k3_mla {

inline constexpr u64 kLeastSplitTiles = 2;
inline constexpr double kLeastSplitGain = 1.15;

constexpr u64 divide_up(u64 value, u64 by) {
  return (value + by - 1) / by;
}

/// Of `keys` keys; one where there are none.
constexpr u64 tiles_of(u64 keys) {
  return keys == 0 ? 1 : divide_up(keys, kTileKeys);
}

/// Clusters of so many blocks that a machine holds at once.
constexpr u64 clusters_of(u32 sm_count, u32 blocks) {
  return sm_count < blocks ? 1 : sm_count / blocks;
}

/// The most splits of so many tiles.
u64 most_splits_of(u64 tiles, const Constants& constants);

/// With more items than this the planner splits none: all that could be won is a part of the last
/// wave, and behind so many full ones that is less than the least gain.
constexpr u64 most_split_items(u64 clusters, const Constants& constants) {
  return static_cast<u64>(1 / constants.least_tail_gain + 1) * clusters;
}

/// As many as fill the machine once, without a ragged last wave.
u64 row_tile_split(u64 items, u64 tiles, u64 clusters, const Constants& constants);

/// What a number of splits would cost in all, in the time of a tile.
struct Cost {
  u64 split = 1;
  double tiles = 0;
};

/// Of the wide kernel.
struct WideSplit {
  Cost one{}, best{};                           // with equal splits of all items
  bool all_pays = false;                        // `best` is worth it
  std::optional<Cost> tail_one{}, tail_best{};  // with splits of the last wave's items alone, where
                                                // that was looked at
  u64 split = 1;                                // what is taken
  u64 unsplit_items = 0;                        // not zero: all but the last wave's
  double tiles = 0;                             // what that costs
};
WideSplit wide_split(u64 items, u64 tiles, u64 clusters, const Constants& constants);

/// Of a request's rows in tiles of 96, split as row_tile_split() does; nothing where that is no
/// choice.
std::optional<double> row_tile_96_cost(u64 batch, u64 rows, u64 tiles, u64 clusters,
                                       const Constants& constants);

}  // namespace kiln::kernels::kimi_k3_mla
