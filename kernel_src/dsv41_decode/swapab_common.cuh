// The numbers of a swap-AB program, all from its key.
#pragma once

#include "kernel_src/dsv41_decode/common.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

// One of the program's tilings.
template <u32 tile_slots>
struct Tiling {
  static constexpr u32 tile = tile_slots;
  static constexpr bool joined = tile == kMediumTile;  // both lists are one
  static constexpr u32 swa_tiles = tiles_of(kSwaSlots, tile);
  static constexpr u32 tiles = joined ? tiles_of(kSwaSlots + kCompressedSlots, tile)
                                      : swa_tiles + tiles_of(kCompressedSlots, tile);
  static constexpr u32 most_rows = joined ? 6 : tile / kWarps;  // of a warp
  static constexpr Layout at = layout(kHeads, tiles, tile);
};

constexpr u32 kSmallTiles = small_tiles(kSwaSlots, kCompressedSlots);
constexpr u32 kMediumTiles = medium_tiles(kSwaSlots, kCompressedSlots);
constexpr u32 kLargeTiles = large_tiles(kSwaSlots, kCompressedSlots);
constexpr u32 kOutputColumns = 2 * kHeads;  // of P: high terms, then low ones
constexpr u32 kHeadTiles = kHeads / 8;      // of the matrix units' 8 columns
static_assert(kHeads == 16 || kHeads == 32, "heads are 16 or 32");
static_assert(kLargeTiles <= kMostTiles, "more tiles than a cluster has blocks");

constexpr u32 kRestParts = rest_parts(kHeads);

// Bytes from the records' start to 64 elements, the given part of 8, of row `row`, as if its pieces
// were in order. Of the rest's rows the parts that are one product follow each other.
template <u32 tile>
__device__ __forceinline__ constexpr u32 rows_at(u32 row, u32 part) {
  constexpr u32 whole = whole_rows(tile);
  constexpr u32 rest = rest_rows(tile);
  constexpr u32 products = 8 / kRestParts;
  if (rest == 0 || row < whole) return part * (whole * 128) + row * 128;
  return whole * 1024 + (part % products * kRestParts + part / products) * (rest * 128) +
         (row - whole) * 128;
}

}  // namespace kiln::kernels::dsv41_decode::swapab
