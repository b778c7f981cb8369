// How a call is shared out: which kernel takes it, in how many splits of its keys, which reducer
// joins them, and what workspace that needs; or why not. Pure arithmetic.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kimi_k3_mla/args.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/device_info.hpp"
#include "kiln/error.hpp"
#include "kiln/launch_shape.hpp"

namespace kiln::kernels::kimi_k3_mla {

inline constexpr u32 kMostHeads = 128;
inline constexpr u32 kMostSplits = 256;                   // what the largest reducer can join
inline constexpr u32 kMostKeys = 0x7fffffff - kTileKeys;  // lengths are int32
inline constexpr u32 kMostBatch = 65535;                  // the grid's z dimension
inline constexpr u32 kMostSms = 65536;
inline constexpr u32 kMostRequestRows = 1u << 30;  // packed rows of a request
inline constexpr u32 kMostRowTiles = 65535;        // its y dimension

/// What the planner takes for granted about a machine: a set for each that was looked at.
struct Constants {
  std::string_view name{};
  u32 sm_count = 0;         // of the machine; a planner may be asked about another count
  u32 wave_cost_tiles = 8;  // what a wave of the wide kernel costs beside its tiles, in tiles
  u32 wide_least_keys = 8192;
  u32 most_row_tile_rows = 64;  // of a request; with more it goes wide if it has keys enough
  u32 most_splits = kMostSplits;
  u32 row_tile_96_blocks = 1;  // that share a tile of 96 rows: a cluster
  /// What a tile of keys takes with 96 rows, by what it takes in the wide kernel, with 128: where
  /// that makes a call cheaper, more rows are shared out in tiles of 96 as well. 0: they never are.
  double row_tile_96_cost = 0;
  /// By how much splits of the last wave's items alone must be cheaper than none.
  double least_tail_gain = 0.02;
  /// Whether they are also weighed against equal splits of all items, where these pay.
  bool tail_or_all = false;
};

/// What was published for B200, whose tensor memory holds 96 rows of one block.
inline constexpr Constants kPublished{.name = "published", .sm_count = 148};
/// An H200. 96 rows do not fit the registers of one block there; the pair that takes them is faster
/// than the wide kernel, which has 128 rows to itself.
inline constexpr Constants kH200{.name = "h200",
                                 .sm_count = 132,
                                 .most_row_tile_rows = 96,
                                 .row_tile_96_blocks = 2,
                                 .row_tile_96_cost = 0.81,
                                 .least_tail_gain = 0.01,
                                 .tail_or_all = true};

/// Of a device that our kernels run on, whatever its architecture: they give a pair of blocks to 96
/// rows. Its SM count is the device's.
KILN_API Constants constants_for(const DeviceInfo& device) noexcept;

/// Null where no set has that name.
KILN_API const Constants* find_constants(std::string_view name) noexcept;
/// All sets, published first.
KILN_API std::vector<std::string> constants_names();

/// One call, by its largest request: requests may be shorter in both lengths.
struct Problem {
  u32 heads = 0;  // of this rank, 1 to 128
  u64 batch = 0;  // requests; 0: nothing to do
  u64 query = 0;  // the most new tokens of a request; 0: nothing to do
  u64 keys = 0;   // the most keys of a request, new tokens among them
  u32 split = 0;  // 0: the planner's choice; 1 to 256: so many, even if some are empty
};

enum class Route : unsigned char {
  row_tiles,  ///< a block, or a pair of them, for up to 96 packed rows
  wide,       ///< a pair of blocks for 128 packed rows, 64 each; every page goes to both
};

/// What joins the splits of a row.
enum class Reducer : unsigned char {
  none,  ///< there is one split
  w1,    ///< a warp a row
  w2,    ///< two warps a row
  w4,    ///< four warps a row
  cta,   ///< a block for a quarter of a row's 512 dims, for more than 32 splits
};

/// "row_tile", "wide".
KILN_API std::string_view to_string(Route route) noexcept;
/// "none", "w1", "w2", "w4", "cta".
KILN_API std::string_view to_string(Reducer reducer) noexcept;

/// The launches of a call. An item is a tile of packed rows of one request: rows (token, head), the
/// head fastest. `row_tile` rows of it go to a cluster of `cluster_blocks` for each of its splits.
///
/// Blocks   row tiles: x = split * cluster_blocks + rank, y = row tiles of a request counted from
///          the last, which has most keys, z = request. Wide: x alone; two blocks for each of the
///          `unsplit_items` first items, then two for each split of each other one, splits fastest.
///          Item = request * row_tiles + row tile
/// Splits   split s of an item takes tiles [s * t, (s + 1) * t) of 128 keys, t = the tiles that any
///          of its rows sees / num_split, rounded up: splits behind the last tile are empty
struct Plan {
  Route route = Route::row_tiles;
  u32 row_tile = 16;  // 16, 32, 48, 64, 96; 128 in the wide kernel
  u32 cluster_blocks = 1;
  u32 row_tiles = 0;      // of a request
  u64 items = 0;          // batch * row_tiles
  u64 unsplit_items = 0;  // wide: that are not split, before all others; they need no reducer
  u32 num_split = 1;      // of every other item
  Extent grid{0, 1, 1};   // zero blocks where there is nothing to do
  Reducer reducer = Reducer::none;
  /// Rows that the reducer joins: all packed rows of the call, token * heads + head; with
  /// unsplit_items the rows of the other items, (item - unsplit_items) * 128 + row of its tile.
  u64 reduce_rows = 0;
  Extent reducer_grid{0, 1, 1};  // blocks of 256 threads
};

/// Plans a call.
///
/// Units   grids in blocks
/// Errors  invalid_argument naming the field, its value and what is allowed
/// Source  the planner of FlashInfer's Kimi-K3 MLA (pull requests 5552 and 5602)
KILN_API Result<Plan> plan(const Problem& problem, u32 sm_count, const Constants& constants);

/// How plan()'s two launches look. Requires cluster_blocks to be what the kernel of its row tile
/// has, attend::cluster_blocks(): a set of constants for the machine sees to it. The reducer may
/// start before the attention kernel ends.
KILN_API LaunchShape attend_shape(const Plan& plan) noexcept;
KILN_API LaunchShape reduce_shape(const Plan& plan) noexcept;

/// The reasons for plan()'s choices, a sentence each. Requires a problem that it plans.
KILN_API std::vector<std::string> reasons(const Problem& problem, u32 sm_count,
                                          const Constants& constants);

/// What splits leave for the reducer, each part from its offset in bytes; all zero where there is
/// one split. Parts start at multiples of 16 bytes if the workspace does.
struct Workspace {
  u64 outputs =
      0;           // [reduce_rows, num_split, 512] bf16: the sum over its keys / the sum of weights
  u64 maxima = 0;  // [reduce_rows, num_split] float: the weights' reference, in powers of two
  u64 sums = 0;    // [reduce_rows, num_split] float: of weights; 0: the split adds nothing
  u64 bytes = 0;   // of it all
};
KILN_API Workspace workspace_of(const Plan& plan) noexcept;
inline u64 workspace_bytes(const Plan& plan) noexcept {
  return workspace_of(plan).bytes;
}

}  // namespace kiln::kernels::kimi_k3_mla
