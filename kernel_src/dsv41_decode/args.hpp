// What changes with every call, passed by value as one grid constant, and how the programs share
// out their work.
#pragma once

#include "kernel_src/shared/dsv41_record.hpp"

namespace kiln::kernels::dsv41_decode {

/// One paged cache and the slots of it that each token attends to.
struct CacheArgs {
  const u8* base = nullptr;
  const int* slots = nullptr;    // [tokens, width]
  const int* lengths = nullptr;  // [tokens]
  u64 page_stride_bytes = 0;
  u64 row_stride_bytes = 0;  // from slot to slot in a page
  u64 cache_slots = 0;       // entries from this number on are skipped
};

struct Args {
  const u16* query = nullptr;  // [tokens, 32 chunks, 64 heads, 16] bf16
  const i64* positions = nullptr;
  const float* cos_sin = nullptr;  // [rope_positions, 32 cos then 32 sin]
  const float* sinks = nullptr;    // [heads], or null
  CacheArgs swa{};
  CacheArgs compressed{};
  u8* output = nullptr;          // [tokens, 8 groups, 4096] E4M3
  u32* output_scales = nullptr;  // four UE8M0 to a word
  u64 output_stride_bytes = 0;   // from token to token
  u64 scale_group_stride_words = 0;
  u64 scale_column_stride_words = 0;
  u64 rope_positions = 0;
};
static_assert(sizeof(Args) == 176, "host and device must agree");

/// Heads of a group, which share a row of the output.
inline constexpr u32 kGroupHeads = 8;
/// Elements that share a scale of the output.
inline constexpr u32 kOutputBlock = 32;

/// Elements that the blocks of a cluster hand each other at once: 32 of the 8 heads of a group.
inline constexpr u32 kUnitBytes = kGroupHeads * kOutputBlock * 4;
KILN_SHARED constexpr u32 units(u32 heads) {
  return (heads + kGroupHeads - 1) / kGroupHeads * (dsv41::kHeadDim / kOutputBlock);
}

namespace swapab {

inline constexpr u32 kWarps = 16;
inline constexpr u32 kBlockThreads = kWarps * 32;
/// A program has up to three tilings of a token's slots; a launch's cluster says which. Of a step
/// of few tokens tiles are small, so that more blocks share a token; the more tokens there are, the
/// larger, so that more clusters are resident at once. In the small and the large one a tile has
/// slots of one list; the medium one takes both lists as one.
inline constexpr u32 kSmallTile = 64, kMediumTile = 80, kLargeTile = 128;
inline constexpr u32 kMostTiles = 8;  // large ones: the largest portable cluster

KILN_SHARED constexpr u32 tiles_of(u32 slots, u32 tile) {
  return (slots + tile - 1) / tile;
}
/// Blocks of a token: at most 16 where large tiles are 8.
KILN_SHARED constexpr u32 small_tiles(u32 swa_slots, u32 compressed_slots) {
  return tiles_of(swa_slots, kSmallTile) + tiles_of(compressed_slots, kSmallTile);
}
KILN_SHARED constexpr u32 large_tiles(u32 swa_slots, u32 compressed_slots) {
  return tiles_of(swa_slots, kLargeTile) + tiles_of(compressed_slots, kLargeTile);
}
/// A warp brings a whole number of rows two at a time: as many as every other one, or, of the
/// medium tile, 6 by the first half of the warps and 4 by the others.
KILN_SHARED constexpr u32 first_row(u32 tile, u32 warp) {
  if (tile != kMediumTile) return warp * (tile / kWarps);
  return warp < kWarps / 2 ? warp * 6 : kWarps + warp * 4;
}
/// As many as large ones where it is no tiling of its own: it needs a portable cluster of at least
/// two blocks, as a launch has that takes another one later, another number of blocks than the
/// others have, and no warp with rows of both lists.
KILN_SHARED constexpr u32 medium_tiles(u32 swa_slots, u32 compressed_slots) {
  const u32 large = large_tiles(swa_slots, compressed_slots);
  const u32 count = tiles_of(swa_slots + compressed_slots, kMediumTile);
  if (count < 2 || count > kMostTiles || count == small_tiles(swa_slots, compressed_slots))
    return large;
  bool apart = false;
  for (u32 warp = 0; warp < kWarps; ++warp)
    apart |= swa_slots % kMediumTile == first_row(kMediumTile, warp);
  return apart ? count : large;
}

/// Where a block keeps what, in bytes from the start of its dynamic shared memory, which is aligned
/// to 1024. What blocks send each other lies at the same place in all blocks of a tiling.
struct Layout {
  u32 records = 0;      // [8 parts of a row, tile, 64] bf16; see swapab_common.cuh
  u32 landed = 0;       // [tiles, parcels of this block] partial outputs, over query and scores
  u32 query = 0;        // Q, as columns
  u32 scores = 0;       // [splits, heads, rows + 4] float
  u32 rest_scores = 0;  // [parts, heads, rows + 4], of the rows beyond a multiple of 64
  u32 weights = 0;      // P: [tile / 64, 2 heads, 64] bf16
  u32 sums = 0;         // [tiles, heads] maximum and sum of a tile, as two floats
  u32 inverses = 0;     // [tiles, parcels of this block, 8, 2] of their heads' factors
  u32 factors = 0;      // [parcels, 8, 2] of the heads of this tile's partial outputs
  u32 ceilings = 0;     // [16, tile + 8] bf16, of 32 elements of each record
  u32 valid = 0;        // [tile] whether the slot is to be read, one byte each
  u32 barriers = 0;     // of outputs that blocks send, of their leave, of sums, and of factors
  u32 bytes = 0;
};

/// Rows of a tile whose scores have products of their own, 64 at a time; and the rest, of which one
/// product has as many parts of their elements as its 64 columns hold of all heads.
KILN_SHARED constexpr u32 whole_rows(u32 tile) {
  return tile / 64 * 64;
}
KILN_SHARED constexpr u32 rest_rows(u32 tile) {
  return tile % 64;
}
KILN_SHARED constexpr u32 rest_parts(u32 heads) {
  return 64 / heads;
}
/// Warps that share the sum of a score. Half of a block's keep the matrix units busy, and softmax
/// has fewer parts to add up.
KILN_SHARED constexpr u32 splits(u32 tile) {
  return kWarps / 2 * 16 / whole_rows(tile);
}
/// A row's scores, and a little more: so the next row's start in other banks.
KILN_SHARED constexpr u32 score_row_floats(u32 rows) {
  return rows + 4;
}
/// Columns of P for 64 slots, high and low terms.
KILN_SHARED constexpr u32 weight_part_bytes(u32 heads) {
  return heads * 2 * 128;
}
KILN_SHARED constexpr u32 ceiling_row_bytes(u32 tile) {
  return tile * 2 + 16;
}
KILN_SHARED constexpr u32 larger_of(u32 a, u32 b) {
  return a > b ? a : b;
}
/// What a block sends another of its tile at once: two units, of the same elements, as f16.
inline constexpr u32 kParcelBytes = 2 * kGroupHeads * kOutputBlock * 2;
/// And before it a float for each head: what f16 1 stands for.
inline constexpr u32 kFactorBytes = 2 * kGroupHeads * 4;
KILN_SHARED constexpr u32 parcels(u32 heads) {
  return units(heads) / 2;
}
/// Parcels of a tile that a block gets at most.
KILN_SHARED constexpr u32 most_parcels(u32 heads, u32 tiles) {
  return (parcels(heads) + tiles - 1) / tiles;
}

/// Of a tiling.
KILN_SHARED constexpr Layout layout(u32 heads, u32 tiles, u32 tile) {
  const u32 landed = tiles * most_parcels(heads, tiles);
  Layout at;
  at.landed = at.records + tile * dsv41::kHeadDim * 2;
  at.query = at.landed;
  at.scores = at.query + heads * dsv41::kHeadDim * 2;
  at.rest_scores = at.scores + splits(tile) * heads * score_row_floats(whole_rows(tile)) * 4;
  u32 end = at.rest_scores;
  if (rest_rows(tile) != 0)
    end += rest_parts(heads) * heads * score_row_floats(rest_rows(tile)) * 4;
  at.weights = (larger_of(at.landed + landed * kParcelBytes, end) + 1023) / 1024 * 1024;
  at.sums = at.weights + tiles_of(tile, 64) * weight_part_bytes(heads);
  at.inverses = at.sums + tiles * heads * 8;
  at.factors = at.inverses + landed * kFactorBytes;
  at.ceilings = at.factors + parcels(heads) * kFactorBytes;
  at.valid = at.ceilings + dsv41::kHeadDim / kOutputBlock * ceiling_row_bytes(tile);
  at.barriers = at.valid + tile;
  at.bytes = at.barriers + 32;
  return at;
}

/// Enough for all tilings, so that a launch may change its own.
KILN_SHARED constexpr u32 shared_bytes(u32 heads, u32 swa_slots, u32 compressed_slots) {
  const u32 small = small_tiles(swa_slots, compressed_slots);
  const u32 medium = medium_tiles(swa_slots, compressed_slots);
  const u32 large = large_tiles(swa_slots, compressed_slots);
  return larger_of(
      layout(heads, small, kSmallTile).bytes,
      larger_of(layout(heads, medium, medium == large ? kLargeTile : kMediumTile).bytes,
                layout(heads, large, kLargeTile).bytes));
}

}  // namespace swapab

namespace mega {

inline constexpr u32 kConsumerThreads = 256;  // two warpgroups, of 256 elements of the output each
inline constexpr u32 kProducerThreads = 256;  // two that bring records
inline constexpr u32 kBlockThreads = kConsumerThreads + kProducerThreads;
inline constexpr u32 kTile = 64;       // slots
inline constexpr u32 kTiles = 2;       // that a block holds at once
inline constexpr u32 kValidTiles = 4;  // whose valid slots are known: the next one's as well
inline constexpr u32 kRows = dsv41::kPaddedHeads;
inline constexpr u32 kLeastBlocks = 2, kMostBlocks = 8;  // that share a token: a cluster

KILN_SHARED constexpr u32 tiles(u32 slots) {
  return (slots + kTile - 1) / kTile;
}

/// Where a block keeps what, in bytes from the start of its dynamic shared memory, which is aligned
/// to 1024. What blocks send each other lies at the same place in all of them, over what it needs
/// no more.
struct Layout {
  static constexpr u32 query = 0;  // [8 parts of a row, heads, 64] bf16
  static constexpr u32 records = query + kRows * dsv41::kHeadDim * 2;  // kTiles of the same shape
  static constexpr u32 landed = query;                                 // [blocks, units] outputs
  static constexpr u32 scores = records + kTiles * kTile * dsv41::kHeadDim * 2;  // both halves
  static constexpr u32 sums = scores;  // [blocks, heads] reference and sum, as two floats
  static constexpr u32 valid = scores + 2 * kRows * kTile * 4;  // [kValidTiles, tile] bytes
  static constexpr u32 barriers = valid + kValidTiles * kTile;
  static constexpr u32 bytes = barriers + (2 * kTiles + 2) * 8;
};

}  // namespace mega

}  // namespace kiln::kernels::dsv41_decode
