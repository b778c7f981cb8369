// The numbers of a swap-AB program, all from its key.
#pragma once

#include "kernel_src/dsv41_decode/common.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

constexpr u32 kSwaTiles = swa_tiles(kSwaSlots);
constexpr u32 kSmallTiles = small_tiles(kSwaSlots, kCompressedSlots);
constexpr u32 kLargeTiles = large_tiles(kSwaSlots, kCompressedSlots);
constexpr u32 kOutputColumns = 2 * kHeads;  // of P: high terms, then low ones
constexpr u32 kHeadTiles = kHeads / 8;      // of the matrix units' 8 columns
constexpr Layout kAt = layout(kHeads, kSwaSlots, kCompressedSlots);
static_assert(kHeads == 16 || kHeads == 32, "heads are 16 or 32");
static_assert(kLargeTiles <= kMostTiles, "more tiles than a cluster has blocks");

// Bytes from the records' start to 64 elements of all rows of a tile, the given ones.
template <u32 tile>
__device__ __forceinline__ constexpr u32 part_of_rows(u32 part) {
  return part * (tile * 128);
}

}  // namespace kiln::kernels::dsv41_decode::swapab
