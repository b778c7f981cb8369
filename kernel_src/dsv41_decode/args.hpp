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
inline constexpr u32 kSwaTile = 64;
/// Of a step of few tokens compressed tiles are small, so that more blocks share a token. Otherwise
/// they are large, so that more clusters are resident at once.
inline constexpr u32 kSmallTile = 64, kLargeTile = 128;
inline constexpr u32 kMostTiles = 8;  // large ones: the largest portable cluster

KILN_SHARED constexpr u32 swa_tiles(u32 swa_slots) {
  return (swa_slots + kSwaTile - 1) / kSwaTile;
}
KILN_SHARED constexpr u32 tiles(u32 swa_slots, u32 compressed_slots, u32 compressed_tile) {
  return swa_tiles(swa_slots) + (compressed_slots + compressed_tile - 1) / compressed_tile;
}
/// Blocks of a token, with large tiles and with small ones: at most 15 where large ones are 8.
KILN_SHARED constexpr u32 large_tiles(u32 swa_slots, u32 compressed_slots) {
  return tiles(swa_slots, compressed_slots, kLargeTile);
}
KILN_SHARED constexpr u32 small_tiles(u32 swa_slots, u32 compressed_slots) {
  return tiles(swa_slots, compressed_slots, kSmallTile);
}

/// Where a block keeps what, in bytes from the start of its dynamic shared memory, which is aligned
/// to 1024. What blocks send each other lies at the same place in all of them.
struct Layout {
  u32 records = 0;   // [8 parts of a row, tile, 64] bf16; see device/tile_products.cuh
  u32 landed = 0;    // [tiles, parcels of this block] partial outputs, over query and scores
  u32 query = 0;     // Q, as columns
  u32 scores = 0;    // [splits, heads, tile + 4] float
  u32 weights = 0;   // P, as columns
  u32 sums = 0;      // [tiles, heads] maximum and sum of a tile, as two floats
  u32 factors = 0;   // [tiles, parcels of this block, 2, 8, 2] of their halves and heads
  u32 valid = 0;     // [tile] whether the slot is to be read, one byte each
  u32 barriers = 0;  // of outputs that blocks send, of their leave to do so, and of sums
  u32 bytes = 0;
};

/// Warps that share the sum of a score.
KILN_SHARED constexpr u32 splits(u32 tile) {
  return kWarps * 16 / tile;
}
KILN_SHARED constexpr u32 score_row_floats(u32 tile) {
  return tile + 4;
}
/// Columns of P for 16 slots, high and low terms, and a little more: so they start in other banks.
KILN_SHARED constexpr u32 weight_step_bytes(u32 heads) {
  return heads * 64 + 16;
}
KILN_SHARED constexpr u32 larger_of(u32 a, u32 b) {
  return a > b ? a : b;
}
/// What a block sends another of its tile at once: two units, of the same elements, as f16.
inline constexpr u32 kParcelBytes = 2 * kGroupHeads * kOutputBlock * 2;
/// And with it a float for each half of its elements and each head: what f16 1 stands for.
inline constexpr u32 kFactorBytes = 2 * (2 * kGroupHeads) * 4;
KILN_SHARED constexpr u32 parcels(u32 heads) {
  return units(heads) / 2;
}
/// Parcels of a tile that a block gets at most.
KILN_SHARED constexpr u32 most_parcels(u32 heads, u32 tiles) {
  return (parcels(heads) + tiles - 1) / tiles;
}

/// The same for all blocks and both tilings.
KILN_SHARED constexpr Layout layout(u32 heads, u32 swa_slots, u32 compressed_slots) {
  const u32 tile = compressed_slots != 0 ? kLargeTile : kSwaTile;
  const u32 small = small_tiles(swa_slots, compressed_slots);
  const u32 large = large_tiles(swa_slots, compressed_slots);
  Layout at;
  at.landed = at.records + tile * dsv41::kHeadDim * 2;
  at.query = at.landed;
  at.scores = at.query + heads * dsv41::kHeadDim * 2;
  const u32 landed =
      larger_of(small * most_parcels(heads, small), large * most_parcels(heads, large));
  const u32 landed_end = at.landed + landed * kParcelBytes;
  // A tile of 64 has twice the splits, and its rows are a little more than half as long.
  const u32 scores_end = at.scores + splits(kSwaTile) * heads * score_row_floats(kSwaTile) * 4;
  at.weights = larger_of(landed_end, scores_end);
  at.sums = at.weights + tile / 16 * weight_step_bytes(heads);
  at.factors = at.sums + larger_of(small, large) * heads * 8;
  at.valid = at.factors + landed * kFactorBytes;
  at.barriers = at.valid + tile;
  at.bytes = at.barriers + 24;
  return at;
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
