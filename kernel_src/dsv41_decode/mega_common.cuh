// The numbers of a padded-head program, and which of a token's tiles a block works on.
#pragma once

#include "kernel_src/dsv41_decode/common.cuh"

namespace kiln::kernels::dsv41_decode::mega {

using At = Layout;

constexpr u32 kPartBytes = kTile * 128;  // 64 elements of all rows of a tile or of the query
constexpr u32 kTileBytes = kTile * dsv41::kHeadDim * 2;
constexpr u32 kSteps = kTile / 16;  // of 16 slots

// What the barriers are for, all of them 8 bytes.
constexpr u32 kFull = 0;              // [kTiles] a tile's records are there
constexpr u32 kEmpty = kTiles * 8;    // [kTiles] a tile's records are done with
constexpr u32 kArrived = kEmpty * 2;  // what other blocks send here
constexpr u32 kLeave = kArrived + 8;  // to send to any block

__device__ __forceinline__ u32 barrier_at(u32 which) {
  return shared_base() + At::barriers + which;
}

// Division by the number of blocks, which is 2 to 8, of numbers below 1024.
struct Blocks {
  u32 count;
  u32 reciprocal;  // in parts of 2^16, rounded up

  __device__ __forceinline__ explicit Blocks(u32 blocks)
      : count(blocks), reciprocal((65536 + blocks - 1) / blocks) {}
  __device__ __forceinline__ u32 quotient(u32 number) const { return number * reciprocal >> 16; }
  __device__ __forceinline__ u32 remainder(u32 number) const {
    return number - quotient(number) * count;
  }
};

// A token's tiles: of the sliding window, then the compressed ones. The blocks of its cluster take
// turns at them, and leave out those that lie behind a list's length.
constexpr u32 kSwaTiles = tiles(kSwaSlots);
constexpr u32 kAllTiles = kSwaTiles + tiles(kCompressedSlots);

struct Lengths {
  int swa;
  int compressed;

  __device__ __forceinline__ bool listed(u32 tile) const {
    if (kCompressedSlots == 0 || tile < kSwaTiles) return static_cast<int>(tile * kTile) < swa;
    return static_cast<int>((tile - kSwaTiles) * kTile) < compressed;
  }
  // The block's first tile from `tile` on that is to be worked on; kAllTiles or more: none.
  __device__ __forceinline__ u32 from(u32 tile, u32 blocks) const {
    while (tile < kAllTiles && !listed(tile)) tile += blocks;
    return tile;
  }
};

__device__ __forceinline__ Lengths lengths_of(const Args& args, u32 token) {
  return {args.swa.lengths[token], kCompressedSlots == 0 ? 0 : args.compressed.lengths[token]};
}

}  // namespace kiln::kernels::dsv41_decode::mega
