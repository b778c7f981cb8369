#include "kernel_src/kimi_k3_mla/plan.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/kimi_k3_mla/plan_costs.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla"};
constexpr std::array kSets = {kPublished, kH200};

constexpr std::array<u32, 5> kRowTiles = {16, 32, 48, 64, 96};
constexpr u32 kWideBlocks = 2;
constexpr u64 kMostGridX = 0x7fffffff;

constexpr u64 kMostWarpSplits = 32;  // a lane a split
constexpr u32 kReducerWarps = 8;
constexpr u32 kReducerQuarters = 4;

Status check(const Problem& problem, u32 sm_count, const Constants& constants) {
  const auto from_1 = [](std::string_view name, u64 value, u64 most) -> Status {
    if (value >= 1 && value <= most) return {};
    return kCheck.wrong(name, std::to_string(value),
                        "it must be from 1 to " + std::to_string(most));
  };
  KILN_TRY(from_1("heads", problem.heads, kMostHeads));
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
  if (problem.query * problem.heads > kMostRequestRows)
    return kCheck.wrong("query * heads", std::to_string(problem.query * problem.heads),
                        "it must be at most " + std::to_string(kMostRequestRows) +
                            ": packed rows are counted in 32 bits");
  if (problem.split > kMostSplits)
    return kCheck.wrong("split", std::to_string(problem.split),
                        "it must be from 1 to 256, which a reducer can join, or 0 for the "
                        "planner's choice");
  KILN_TRY(from_1("sm_count", sm_count, kMostSms));
  KILN_TRY(from_1("row_tile_96_blocks", constants.row_tile_96_blocks, kWideBlocks));
  return from_1("most_splits", constants.most_splits, kMostSplits);
}

/// Blocks that share a row tile.
u32 blocks_of(u32 row_tile, const Constants& constants) {
  return row_tile < 96 ? 1 : row_tile == 96 ? constants.row_tile_96_blocks : kWideBlocks;
}

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

/// How the wide kernel would take a call whose splits are the planner's choice, unless tiles of 96
/// rows are cheaper.
std::optional<WideSplit> cheapest_wide(const Problem& problem, u64 rows, u32 sm_count,
                                       const Constants& constants) {
  const u64 tiles = tiles_of(problem.keys);
  const WideSplit wide = wide_split(problem.batch * divide_up(rows, attend::kWideRows), tiles,
                                    clusters_of(sm_count, kWideBlocks), constants);
  const auto narrow = row_tile_96_cost(
      problem.batch, rows, tiles, clusters_of(sm_count, constants.row_tile_96_blocks), constants);
  if (narrow && *narrow < wide.tiles) return {};
  return wide;
}

u32 row_tile_for(u64 rows) {
  for (const u32 tile : kRowTiles)
    if (rows <= tile) return tile;
  return kRowTiles.back();
}

Error too_many(std::string_view what, u64 count, u64 most) {
  return kCheck.wrong(what, std::to_string(count),
                      "it must be at most " + std::to_string(most) +
                          ", which the grid can hold; give the requests to several calls");
}

}  // namespace

Constants constants_for(const DeviceInfo& device) noexcept {
  Constants made = device.architecture == "sm_90a" ? kH200 : kPublished;
  made.sm_count = device.sm_count;
  made.row_tile_96_blocks = attend::cluster_blocks(96);
  return made;
}

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
  KILN_TRY(check(problem, sm_count, constants));
  if (problem.batch == 0 || problem.query == 0) return Plan{};
  const u64 rows = problem.query * problem.heads;
  const u64 tiles = tiles_of(problem.keys);
  std::optional<WideSplit> best;
  bool wide = rows > constants.most_row_tile_rows && problem.keys >= constants.wide_least_keys;
  if (wide && problem.split == 0) {
    best = cheapest_wide(problem, rows, sm_count, constants);
    wide = best.has_value();
  }

  Plan made{.route = wide ? Route::wide : Route::row_tiles,
            .row_tile = wide ? attend::kWideRows : row_tile_for(rows)};
  made.cluster_blocks = blocks_of(made.row_tile, constants);
  const u64 clusters = clusters_of(sm_count, made.cluster_blocks);
  const u64 row_tiles = divide_up(rows, made.row_tile);
  if (row_tiles > kMostRowTiles && !wide)
    return too_many("row tiles of a request", row_tiles, kMostRowTiles);
  if (row_tiles > kMostGridX) return too_many("row tiles of a request", row_tiles, kMostGridX);
  made.row_tiles = static_cast<u32>(row_tiles);
  made.items = problem.batch * row_tiles;

  u64 split = problem.split;
  if (best) {
    split = best->split;
    made.unsplit_items = best->unsplit_items;
  } else if (split == 0) {
    split = row_tile_split(made.items, tiles, clusters, constants);
  }
  made.num_split = static_cast<u32>(split);

  const u64 split_items = made.items - made.unsplit_items;
  const u64 grid_x =
      wide ? kWideBlocks * (made.unsplit_items + split_items * split) : split * made.cluster_blocks;
  if (grid_x > kMostGridX) return too_many("blocks of the call", grid_x, kMostGridX);
  made.grid = {static_cast<u32>(grid_x), wide ? 1 : made.row_tiles,
               wide ? 1 : static_cast<u32>(problem.batch)};

  made.reduce_rows = split == 1                ? 0
                     : made.unsplit_items != 0 ? split_items * attend::kWideRows
                                               : problem.batch * rows;
  made.reducer = reducer_of(split, made.reduce_rows);
  if (made.reduce_rows > kMostGridX) return too_many("split rows", made.reduce_rows, kMostGridX);
  if (made.reducer != Reducer::none)
    made.reducer_grid = {
        static_cast<u32>(divide_up(made.reduce_rows, rows_of_a_block(made.reducer))),
        made.reducer == Reducer::cta ? kReducerQuarters : 1, 1};
  return made;
}

LaunchShape attend_shape(const Plan& plan) noexcept {
  LaunchShape shape;
  shape.grid_blocks = plan.grid;
  shape.cluster_blocks.x = plan.cluster_blocks;
  shape.block_threads.x = attend::kBlockThreads;
  shape.shared_bytes = attend::layout(plan.row_tile).bytes;
  return shape;
}

LaunchShape reduce_shape(const Plan& plan) noexcept {
  LaunchShape shape;
  shape.grid_blocks = plan.reducer_grid;
  shape.block_threads.x = kReducerWarps * 32;
  shape.overlap_previous = Overlap::yes;
  return shape;
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
