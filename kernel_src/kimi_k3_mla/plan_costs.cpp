#include "kernel_src/kimi_k3_mla/plan_costs.hpp"

#include <algorithm>
#include <cmath>

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr double kChunkCost = 0.05;         // of joining one split of an item
constexpr double kUnderfilledPower = 0.33;  // a wave that fills less of the machine clocks higher

/// `tile_cost`: of one, in the time of one of the wide kernel.
double uniform_cost(u64 items, u64 tiles, u64 clusters, u64 split, const Constants& constants,
                    double tile_cost = 1) {
  const u64 waves = divide_up(items * split, clusters);
  return static_cast<double>(waves) * (static_cast<double>(divide_up(tiles, split)) * tile_cost +
                                       static_cast<double>(constants.wave_cost_tiles)) +
         kChunkCost * static_cast<double>(items * split);
}

/// `tail` items of a call in `split` chunks each, behind waves that are full.
double tail_cost(u64 tail, u64 tiles, u64 clusters, u64 split, const Constants& constants) {
  const u64 chunks = tail * split;
  const u64 full_waves = divide_up(chunks, clusters) - 1;
  const double wave = static_cast<double>(divide_up(tiles, split) + constants.wave_cost_tiles);
  const double filled =
      static_cast<double>(chunks - full_waves * clusters) / static_cast<double>(clusters);
  const double joining = split == 1 ? 0 : kChunkCost * static_cast<double>(chunks);
  return wave * (static_cast<double>(full_waves) + std::pow(filled, kUnderfilledPower)) + joining;
}

template <class CostOf>
Cost cheapest(u64 most, Cost best, const CostOf& cost_of) {
  for (u64 split = 2; split <= most; ++split)
    if (const double cost = cost_of(split); cost < best.tiles) best = {split, cost};
  return best;
}

}  // namespace

u64 most_splits_of(u64 tiles, const Constants& constants) {
  return std::clamp<u64>(tiles / kLeastSplitTiles, 1, constants.most_splits);
}

u64 row_tile_split(u64 items, u64 tiles, u64 clusters, const Constants& constants) {
  return std::clamp<u64>(clusters / items, 1, most_splits_of(tiles, constants));
}

WideSplit wide_split(u64 items, u64 tiles, u64 clusters, const Constants& constants) {
  const u64 most = most_splits_of(tiles, constants);
  const auto uniform = [&](u64 split) {
    return uniform_cost(items, tiles, clusters, split, constants);
  };
  WideSplit made;
  made.one = {1, uniform(1)};
  made.best = cheapest(most, made.one, uniform);
  made.all_pays = made.best.split > 1 && made.one.tiles / made.best.tiles >= kLeastSplitGain;
  const Cost& uniform_choice = made.all_pays ? made.best : made.one;
  made.split = uniform_choice.split;
  made.tiles = uniform_choice.tiles;
  if (made.all_pays && !constants.tail_or_all) return made;
  const u64 full_waves = items / clusters, tail = items % clusters;
  if (full_waves == 0 || tail == 0) return made;
  const auto whole = [&](u64 split) {
    return static_cast<double>(full_waves * (tiles + constants.wave_cost_tiles)) +
           tail_cost(tail, tiles, clusters, split, constants);
  };
  made.tail_one = {1, whole(1)};
  made.tail_best = cheapest(most, *made.tail_one, whole);
  if (made.tail_best->split > 1 && made.tail_best->tiles < made.tiles &&
      made.tail_best->tiles <= made.tail_one->tiles * (1 - constants.least_tail_gain)) {
    made.split = made.tail_best->split;
    made.unsplit_items = full_waves * clusters;
    made.tiles = made.tail_best->tiles;
  }
  return made;
}

std::optional<double> row_tile_96_cost(u64 batch, u64 rows, u64 tiles, u64 clusters,
                                       const Constants& constants) {
  const u64 row_tiles = divide_up(rows, 96);
  if (constants.row_tile_96_cost == 0 || row_tiles > kMostRowTiles) return {};
  const u64 items = batch * row_tiles;
  const u64 split = row_tile_split(items, tiles, clusters, constants);
  return uniform_cost(items, tiles, clusters, split, constants, constants.row_tile_96_cost);
}

}  // namespace kiln::kernels::kimi_k3_mla
