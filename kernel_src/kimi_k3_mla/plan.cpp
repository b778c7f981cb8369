#include "kernel_src/kimi_k3_mla/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "kernel_src/argument_checks.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla"};
constexpr std::array kSets = {kPublished, kH200};

constexpr std::array<u32, 5> kRowTiles = {16, 32, 48, 64, 96};
constexpr u64 kMostRowTileRows = 64;  // of a request, whatever its keys: above them wide may come
constexpr u64 kLeastSplitTiles = 2;
constexpr u64 kWideBlocks = 2;
constexpr u64 kMostGridX = 0x7fffffff;

// Of the wide kernel's cost model.
constexpr double kChunkCost = 0.05;  // of joining one split of an item, in tiles
constexpr double kLeastSplitGain = 1.15;
constexpr double kUnderfilledPower = 0.33;  // a wave that fills less of the machine clocks higher
constexpr double kLeastTailGain = 0.02;

constexpr u64 kMostWarpSplits = 32;  // a lane a split
constexpr u32 kReducerWarps = 8;
constexpr u32 kReducerQuarters = 4;

constexpr u64 divide_up(u64 value, u64 by) {
  return (value + by - 1) / by;
}

u64 tiles_of(u64 keys) {
  return std::max<u64>(1, divide_up(keys, kTileKeys));
}

Status check(const Problem& problem, u32 sm_count, const Constants& constants) {
  const auto from_1 = [](std::string_view name, u64 value, u64 most) -> Status {
    if (value >= 1 && value <= most) return {};
    return kCheck.wrong(name, std::to_string(value),
                        "it must be from 1 to " + std::to_string(most));
  };
  if (Status good = from_1("heads", problem.heads, kMostHeads); !good) return good;
  if (problem.batch > kMostBatch)
    return kCheck.wrong("batch", std::to_string(problem.batch),
                        "it must be at most " + std::to_string(kMostBatch) +
                            ", which the grid can "
                            "hold; give the requests to several calls");
  if (problem.query > kMostKeys || problem.keys > kMostKeys)
    return kCheck.wrong(
        problem.query > kMostKeys ? "query" : "keys",
        std::to_string(std::max(problem.query, problem.keys)),
        "it must be at most " + std::to_string(kMostKeys) + ": lengths are 32-bit integers");
  if (problem.split > kMostSplits)
    return kCheck.wrong("split", std::to_string(problem.split),
                        "it must be from 1 to 256, which a reducer can join, or 0 for the "
                        "planner's choice");
  if (Status good = from_1("sm_count", sm_count, kMostSms); !good) return good;
  return from_1("most_splits", constants.most_splits, kMostSplits);
}

// ---- splits of row tiles

u64 row_tile_blocks(u32 row_tile, const Constants& constants) {
  return row_tile == 96 ? constants.row_tile_96_blocks : 1;
}

/// As many as fill the machine once, without a ragged last wave.
u64 row_tile_split(u64 items, u64 tiles, u64 slots, const Constants& constants) {
  const u64 most = std::min<u64>(constants.most_splits, std::max<u64>(1, tiles / kLeastSplitTiles));
  return std::clamp<u64>(slots / items, 1, most);
}

// ---- splits of the wide kernel, whose cost is counted in the time of a tile

struct Cost {
  u64 split = 1;
  double tiles = 0;
};

struct WideSplit {
  Cost one;  // of the uniform splits
  Cost best;
  u64 split = 1;                                // what is taken
  u64 unsplit_items = 0;                        // not zero: only the tail is split
  std::optional<Cost> tail_one{}, tail_best{};  // where a tail was looked at: of the whole call
};

u64 most_wide_splits(u64 tiles, const Constants& constants) {
  return std::max<u64>(1, std::min<u64>(constants.most_splits, tiles / kLeastSplitTiles));
}

double uniform_cost(u64 items, u64 tiles, u64 pairs, u64 split, const Constants& constants) {
  const u64 waves = divide_up(items * split, pairs);
  return static_cast<double>(waves * (divide_up(tiles, split) + constants.wave_cost_tiles)) +
         kChunkCost * static_cast<double>(items * split);
}

/// `tail` items of a call in `split` chunks each, behind waves that are full.
double tail_cost(u64 tail, u64 tiles, u64 pairs, u64 split, const Constants& constants) {
  const u64 chunks = tail * split;
  const u64 full_waves = divide_up(chunks, pairs) - 1;
  const double wave = static_cast<double>(divide_up(tiles, split) + constants.wave_cost_tiles);
  const double filled =
      static_cast<double>(chunks - full_waves * pairs) / static_cast<double>(pairs);
  const double joining = split == 1 ? 0 : kChunkCost * static_cast<double>(chunks);
  return wave * (static_cast<double>(full_waves) + std::pow(filled, kUnderfilledPower)) + joining;
}

template <class CostOf>
Cost cheapest(u64 most, Cost best, const CostOf& cost_of) {
  for (u64 split = 2; split <= most; ++split)
    if (const double cost = cost_of(split); cost < best.tiles) best = {split, cost};
  return best;
}

WideSplit wide_split(u64 items, u64 tiles, u64 pairs, const Constants& constants) {
  const u64 most = most_wide_splits(tiles, constants);
  const auto uniform = [&](u64 split) {
    return uniform_cost(items, tiles, pairs, split, constants);
  };
  WideSplit made;
  made.one = {1, uniform(1)};
  made.best = cheapest(most, made.one, uniform);
  if (made.best.split > 1 && made.one.tiles / made.best.tiles >= kLeastSplitGain) {
    made.split = made.best.split;
    return made;
  }
  const u64 full_waves = items / pairs, tail = items % pairs;
  if (full_waves == 0 || tail == 0) return made;
  const auto whole = [&](u64 split) {
    return static_cast<double>(full_waves * (tiles + constants.wave_cost_tiles)) +
           tail_cost(tail, tiles, pairs, split, constants);
  };
  made.tail_one = {1, whole(1)};
  made.tail_best = cheapest(most, *made.tail_one, whole);
  if (made.tail_best->split > 1 &&
      made.tail_best->tiles <= made.tail_one->tiles * (1 - kLeastTailGain)) {
    made.split = made.tail_best->split;
    made.unsplit_items = full_waves * pairs;
  }
  return made;
}

// ---- what joins them

Reducer reducer_of(u64 split, u64 rows) {
  if (split <= 1) return Reducer::none;
  if (split > kMostWarpSplits) return Reducer::cta;
  return rows <= 256 ? Reducer::w4 : rows <= 1024 ? Reducer::w2 : Reducer::w1;
}

u64 rows_of_a_block(Reducer reducer) {
  switch (reducer) {
    case Reducer::w1:
      return kReducerWarps;
    case Reducer::w2:
      return kReducerWarps / 2;
    case Reducer::w4:
      return kReducerWarps / 4;
    case Reducer::cta:
    case Reducer::none:
      break;
  }
  return 1;
}

bool takes_wide(u64 rows, u64 keys, const Constants& constants) {
  return rows > kMostRowTileRows && keys >= constants.wide_least_keys;
}

u32 row_tile_for(u64 rows) {
  for (const u32 tile : kRowTiles)
    if (rows <= tile) return tile;
  return kRowTiles.back();
}

u64 pairs_of(u32 sm_count) {
  return std::max<u64>(1, sm_count / kWideBlocks);
}

u64 slots_of(u32 sm_count, u64 blocks) {
  return std::max<u64>(1, sm_count / blocks);
}

Error too_many(std::string_view what, u64 count, u64 most) {
  return kCheck.wrong(what, std::to_string(count),
                      "it must be at most " + std::to_string(most) +
                          ", which the grid can hold; give the requests to several calls");
}

// ---- words

std::string text(double value) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.2f", value);
  return digits.data();
}

std::string counted(u64 count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string why_wide_split(const WideSplit& made, u64 items, u64 pairs) {
  std::string words = counted(items, "item") + " on " + counted(pairs, "pair") + " of SMs cost " +
                      text(made.one.tiles) + " tile times";
  if (made.best.split == 1) return words + ", and no split is cheaper";
  return words + ", in " + counted(made.best.split, "split") + " " + text(made.best.tiles) + ": " +
         text(made.one.tiles / made.best.tiles) + " times as fast, and " + text(kLeastSplitGain) +
         " is asked for";
}

std::string why_tail_split(const WideSplit& made, u64 items, u64 pairs) {
  std::string words = counted(items % pairs, "item") + " of the last wave; whole, the call costs " +
                      text(made.tail_one->tiles) + " tile times";
  if (made.tail_best->split == 1) return words + ", and no split of them is cheaper";
  return words + ", with them in " + counted(made.tail_best->split, "split") + " " +
         text(made.tail_best->tiles) + ": " +
         text(100 * (1 - made.tail_best->tiles / made.tail_one->tiles)) +
         " % less, and 2 % is asked for";
}

}  // namespace

const Constants* find_constants(std::string_view name) noexcept {
  const auto* found =
      std::find_if(kSets.begin(), kSets.end(), [&](const auto& set) { return set.name == name; });
  return found == kSets.end() ? nullptr : found;
}

std::vector<std::string> constants_names() {
  std::vector<std::string> names;
  for (const Constants& set : kSets) names.emplace_back(set.name);
  return names;
}

std::string_view to_string(Route route) noexcept {
  return route == Route::wide ? "wide" : "row_tile";
}

std::string_view to_string(Reducer reducer) noexcept {
  switch (reducer) {
    case Reducer::none:
      return "none";
    case Reducer::w1:
      return "w1";
    case Reducer::w2:
      return "w2";
    case Reducer::w4:
      return "w4";
    case Reducer::cta:
      return "cta";
  }
  return {};
}

Result<Plan> plan(const Problem& problem, u32 sm_count, const Constants& constants) {
  if (const Status good = check(problem, sm_count, constants); !good) return good.error();
  if (problem.batch == 0 || problem.query == 0) return Plan{};
  const u64 rows = problem.query * problem.heads;
  const u64 tiles = tiles_of(problem.keys);
  const bool wide = takes_wide(rows, problem.keys, constants);

  Plan made{.route = wide ? Route::wide : Route::row_tiles,
            .row_tile = wide ? kWideRows : row_tile_for(rows)};
  made.cluster_blocks =
      static_cast<u32>(wide ? kWideBlocks : row_tile_blocks(made.row_tile, constants));
  const u64 row_tiles = divide_up(rows, made.row_tile);
  if (row_tiles > kMostRowTiles && !wide)
    return too_many("row tiles of a request", row_tiles, kMostRowTiles);
  if (row_tiles > kMostGridX) return too_many("row tiles of a request", row_tiles, kMostGridX);
  made.row_tiles = static_cast<u32>(row_tiles);
  made.items = problem.batch * row_tiles;

  u64 split = problem.split;
  if (split == 0 && wide) {
    const WideSplit best = wide_split(made.items, tiles, pairs_of(sm_count), constants);
    split = best.split;
    made.unsplit_items = best.unsplit_items;
  } else if (split == 0) {
    split = row_tile_split(made.items, tiles, slots_of(sm_count, made.cluster_blocks), constants);
  }
  made.num_split = static_cast<u32>(split);

  const u64 split_items = made.items - made.unsplit_items;
  const u64 grid_x =
      wide ? kWideBlocks * (made.unsplit_items + split_items * split) : split * made.cluster_blocks;
  if (grid_x > kMostGridX) return too_many("blocks of the call", grid_x, kMostGridX);
  made.grid = {static_cast<u32>(grid_x), wide ? 1 : made.row_tiles,
               wide ? 1 : static_cast<u32>(problem.batch)};

  made.reduce_rows = split == 1                ? 0
                     : made.unsplit_items != 0 ? split_items * kWideRows
                                               : problem.batch * rows;
  made.reducer = reducer_of(split, made.reduce_rows);
  if (made.reduce_rows > kMostGridX) return too_many("split rows", made.reduce_rows, kMostGridX);
  if (made.reducer != Reducer::none)
    made.reducer_grid = {
        static_cast<u32>(divide_up(made.reduce_rows, rows_of_a_block(made.reducer))),
        made.reducer == Reducer::cta ? kReducerQuarters : 1, 1};
  return made;
}

std::vector<std::string> reasons(const Problem& problem, u32 sm_count, const Constants& constants) {
  if (problem.batch == 0) return {"the batch is empty: nothing is launched"};
  if (problem.query == 0) return {"no request has a new token: nothing is launched"};
  const auto made = plan(problem, sm_count, constants);
  if (!made) return {};
  const u64 rows = problem.query * problem.heads;
  const u64 tiles = tiles_of(problem.keys);
  const std::string request_rows = counted(rows, "row") + " of a request";
  const bool wide = made->route == Route::wide;

  std::vector<std::string> words;
  if (wide)
    words.push_back("route: wide; " + request_rows + " are more than 64, and " +
                    std::to_string(problem.keys) + " keys are at least " +
                    std::to_string(constants.wide_least_keys));
  else if (rows <= kMostRowTileRows)
    words.push_back("route: row tiles; " + request_rows + " are at most 64");
  else
    words.push_back("route: row tiles; " + std::to_string(problem.keys) + " keys are fewer than " +
                    std::to_string(constants.wide_least_keys));
  words.push_back("row tile: " + std::to_string(made->row_tile) +
                  (wide                     ? ", what a pair of blocks takes"
                   : rows <= made->row_tile ? ", the smallest that holds them"
                                            : ", the largest") +
                  "; " + counted(made->row_tiles, "tile") + " a request, " +
                  counted(made->items, "item") + " in all");
  if (problem.split != 0) {
    words.push_back("split: " + std::to_string(problem.split) + ", as asked for");
  } else if (!wide) {
    const u64 slots = slots_of(sm_count, made->cluster_blocks);
    words.push_back("split: " + std::to_string(made->num_split) + "; " + std::to_string(slots) +
                    (made->cluster_blocks == 1 ? " SMs" : " pairs of SMs") + " hold " +
                    std::to_string(made->items) + " items " + counted(slots / made->items, "time") +
                    "; at least 1, at most " +
                    std::to_string(std::min<u64>(constants.most_splits,
                                                 std::max<u64>(1, tiles / kLeastSplitTiles))) +
                    " of two tiles of 128 keys or more");
  } else {
    const u64 pairs = pairs_of(sm_count);
    const WideSplit best = wide_split(made->items, tiles, pairs, constants);
    const u64 uniform = best.unsplit_items != 0 ? 1 : best.split;
    words.push_back("split: " + std::to_string(uniform) + "; " +
                    why_wide_split(best, made->items, pairs));
    if (best.tail_one)
      words.push_back("tail split: " + std::to_string(best.split) + "; " +
                      why_tail_split(best, made->items, pairs));
  }
  if (made->reducer == Reducer::none)
    words.push_back("reducer: none; one split is the answer");
  else if (made->reducer == Reducer::cta)
    words.push_back("reducer: cta; " + std::to_string(made->num_split) +
                    " splits are more than 32");
  else
    words.push_back("reducer: " + std::string(to_string(made->reducer)) + "; " +
                    counted(made->reduce_rows, "row") + " (w4 up to 256, w2 up to 1024, w1 above)");
  return words;
}

Workspace workspace_of(const Plan& plan) noexcept {
  if (plan.reducer == Reducer::none) return {};
  constexpr auto align = [](u64 bytes) { return (bytes + 15) / 16 * 16; };
  const u64 parts = plan.reduce_rows * plan.num_split;
  Workspace at;
  at.maxima = align(parts * kLatentDim * 2);
  at.sums = at.maxima + align(parts * 4);
  at.bytes = at.sums + align(parts * 4);
  return at;
}

}  // namespace kiln::kernels::kimi_k3_mla
