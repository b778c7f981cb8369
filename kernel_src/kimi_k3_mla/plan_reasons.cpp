#include <array>
#include <cmath>
#include <cstdio>

#include "kernel_src/kimi_k3_mla/plan_costs.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

std::string text(double value) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.2f", value);
  return digits.data();
}

std::string counted(u64 count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string why_wide_split(const WideSplit& made, u64 items, u64 clusters) {
  std::string words = counted(items, "item") + " on " + counted(clusters, "pair") +
                      " of SMs cost " + text(made.one.tiles) + " tile times";
  if (made.best.split == 1) return words + ", and no split is cheaper";
  return words + ", in " + counted(made.best.split, "split") + " " + text(made.best.tiles) + ": " +
         text(made.one.tiles / made.best.tiles) + " times as fast, and " + text(kLeastSplitGain) +
         " is asked for";
}

std::string why_tail_split(const WideSplit& made, u64 items, u64 clusters,
                           const Constants& constants) {
  std::string words = counted(items % clusters, "item") +
                      " of the last wave; whole, the call costs " + text(made.tail_one->tiles) +
                      " tile times";
  if (made.tail_best->split == 1) return words + ", and no split of them is cheaper";
  return words + ", with them in " + counted(made.tail_best->split, "split") + " " +
         text(made.tail_best->tiles) + ": " +
         text(100 * (1 - made.tail_best->tiles / made.tail_one->tiles)) + " % less, and " +
         std::to_string(std::lround(100 * constants.least_tail_gain)) + " % is asked for" +
         (!made.all_pays            ? ""
          : made.unsplit_items != 0 ? ", and less than in equal splits of all"
                                    : "; equal splits of all cost no more");
}

std::string why_not_wide(const Problem& problem, u64 rows, u32 sm_count,
                         const Constants& constants) {
  const u64 tiles = tiles_of(problem.keys);
  const auto pairs = clusters_of(sm_count, attend::cluster_blocks(attend::kWideRows));
  const auto narrow = row_tile_96_cost(problem.batch, rows, tiles, pairs, constants);
  const WideSplit wide =
      wide_split(problem.batch * divide_up(rows, attend::kWideRows), tiles, pairs, constants);
  return "route: row tiles; " + counted(rows, "row") + " of a request cost " +
         text(narrow.value_or(0)) + " tile times in tiles of 96, " +
         text(constants.row_tile_96_cost) + " of a tile time each, and " + text(wide.tiles) +
         " in the wide kernel";
}

}  // namespace

std::vector<std::string> reasons(const Problem& problem, u32 sm_count, const Constants& constants) {
  if (problem.batch == 0) return {"the batch is empty: nothing is launched"};
  if (problem.query == 0) return {"no request has a new token: nothing is launched"};
  const auto made = plan(problem, sm_count, constants);
  if (!made) return {};
  const u64 rows = problem.query * problem.heads;
  const u64 tiles = tiles_of(problem.keys);
  const std::string request_rows = counted(rows, "row") + " of a request";
  const bool wide = made->route == Route::wide;
  const u64 clusters = clusters_of(sm_count, made->cluster_blocks);

  std::vector<std::string> words;
  if (wide)
    words.push_back("route: wide; " + request_rows + " are more than " +
                    std::to_string(constants.most_row_tile_rows) + ", and " +
                    std::to_string(problem.keys) + " keys are at least " +
                    std::to_string(constants.wide_least_keys));
  else if (rows <= constants.most_row_tile_rows)
    words.push_back("route: row tiles; " + request_rows + " are at most " +
                    std::to_string(constants.most_row_tile_rows));
  else if (problem.keys < constants.wide_least_keys)
    words.push_back("route: row tiles; " + std::to_string(problem.keys) + " keys are fewer than " +
                    std::to_string(constants.wide_least_keys));
  else
    words.push_back(why_not_wide(problem, rows, sm_count, constants));
  words.push_back("row tile: " + std::to_string(made->row_tile) +
                  (wide                     ? ", what a pair of blocks takes"
                   : rows <= made->row_tile ? ", the smallest that holds them"
                                            : ", the largest") +
                  "; " + counted(made->row_tiles, "tile") + " a request, " +
                  counted(made->items, "item") + " in all");
  if (problem.split != 0) {
    words.push_back("split: " + std::to_string(problem.split) + ", as asked for");
  } else if (!wide) {
    words.push_back("split: " + std::to_string(made->num_split) + "; " +
                    counted(clusters, made->cluster_blocks == 1 ? "SM" : "pair") +
                    (made->cluster_blocks == 1 ? "" : " of SMs") +
                    (clusters == 1 ? " holds " : " hold ") + counted(made->items, "item") + " " +
                    counted(clusters / made->items, "time") + "; at least 1, at most " +
                    std::to_string(most_splits_of(tiles, constants)) +
                    " of two tiles of 128 keys or more");
  } else {
    const WideSplit best = wide_split(made->items, tiles, clusters, constants);
    const u64 uniform = best.unsplit_items != 0 ? 1 : best.split;
    words.push_back("split: " + std::to_string(uniform) + "; " +
                    why_wide_split(best, made->items, clusters));
    if (best.tail_one)
      words.push_back("tail split: " + std::to_string(best.unsplit_items != 0 ? best.split : 1) +
                      "; " + why_tail_split(best, made->items, clusters, constants));
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

}  // namespace kiln::kernels::kimi_k3_mla
