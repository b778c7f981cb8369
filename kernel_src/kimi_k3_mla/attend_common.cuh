// The numbers of an attention program, its shared memory, and which rows and keys a block works on.
#pragma once

#include "jit/key.cuh"
#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/device/ptx_mbarrier.cuh"
#include "kernel_src/device/ptx_shared.cuh"
#include "kernel_src/kimi_k3_mla/args.hpp"

namespace kiln::kernels::kimi_k3_mla::attend {

constexpr u32 kRowTile = key::row_tile;
constexpr u32 kBlocks = cluster_blocks(kRowTile);  // that share each page
constexpr u32 kColumns = kRowTile / kBlocks;       // rows of a block
constexpr u32 kStages = stages(kRowTile);
constexpr u32 kTerms = weight_terms(kRowTile);
constexpr Layout kAt = layout(kRowTile);
constexpr u32 kPartBytes = kPageKeys * 128;  // a part of a page
constexpr u32 kParts = kLatentDim / 128;
// Weights are 2^6 times what they stand for, against the largest score when the reference was last
// set; it is set anew before a weight passes what E4M3 holds, 448. Below 2^-10 nothing is left of a
// term, so a second one is scaled up: weights count down to 20 octaves under the reference, with
// one term to 16.
constexpr float kWeightShift = 6;
constexpr float kSecondScale = 16;
constexpr u32 kOverSecondScale = 0x2c002c00;  // 1 / 16 twice, as f16
constexpr float kMostExponent = 8.80f;
// With one term a reference that rises goes an octave beyond what was seen: what rose once rises
// again, and each time costs a block more than a tile. A sink among the first keys stays its own
// reference.
constexpr float kRoomToRise = kTerms == 1 ? 1 : 0;
constexpr float kNoMaximum = -1e30f;

extern __shared__ __align__(1024) u8 shared_memory[];

__device__ __forceinline__ u32 shared_at(u32 byte) {
  return device::shared_address(shared_memory) + byte;
}
__device__ __forceinline__ u32 page_at(u32 stage) {
  return shared_at(kAt.pages) + stage * kPageBytes;
}
__device__ __forceinline__ u32 full_at(u32 stage) {
  return shared_at(kAt.barriers) + stage * 8;
}
__device__ __forceinline__ u32 empty_at(u32 stage) {
  return shared_at(kAt.barriers) + (kStages + stage) * 8;
}

// Block scope is enough for a pair too: its barriers tell of copies and reads alone. At cluster
// scope every wait empties the L1 cache.
__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
  while (!device::barrier_try_wait(barrier, parity)) {
  }
}

// The next page of the ring, and which phase of its barriers that is.
struct Turn {
  u32 stage = 0;
  u32 parity = 0;
  __device__ __forceinline__ explicit Turn(u32 first = 0) : stage(first) {}
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ int smaller(int a, int b) {
  return a < b ? a : b;
}

// A cluster's work: some packed rows of one request, (token, head) with the head fastest, against
// some of its keys.
struct Item {
  u32 request;
  u32 query_begin;  // the request's first token
  int tokens;       // of the request
  int rows;         // of them, packed
  int first_row;    // of this block
  int last_row;     // of this cluster
  int keys;         // that any row of the cluster sees
  int see_from;     // keys that token 0 sees; each next one sees one more
  int first_tile, last_tile;
  u32 split, splits;
  u32 stored_at;  // first_row's row of the output, or its place in the workspace: 1 KiB each

  __device__ __forceinline__ bool none() const { return rows == 0; }
  /// The row of the query, and of the output, that first_row is: of so few that 32 bits hold them.
  __device__ __forceinline__ u32 query_row(const Args& args) const {
    return query_begin * args.heads + static_cast<u32>(first_row);
  }
  __device__ __forceinline__ int pages_end() const {
    return smaller(last_tile * 2,
                   (keys + static_cast<int>(kPageKeys) - 1) / static_cast<int>(kPageKeys));
  }
};

// All of it but the keys, which need the request's length: that comes from memory.
__device__ __forceinline__ Item rows_of_block(const Args& args) {
  Item item;
  u32 row_tile;
  bool apart = false;
  u64 from_split_items = 0;
  if (kRowTile < kWideRows) {
    item.request = blockIdx.z;
    row_tile = gridDim.y - 1 - blockIdx.y;
    item.split = blockIdx.x / kBlocks;
    item.splits = args.splits;
  } else {
    const u32 cluster = blockIdx.x / kBlocks;
    const bool whole = cluster < args.unsplit_items;
    const u32 share = cluster - args.unsplit_items;
    const u32 number = whole ? cluster : args.unsplit_items + share / args.splits;
    item.split = whole ? 0 : share % args.splits;
    item.splits = whole ? 1 : args.splits;
    item.request = number / args.row_tiles;
    row_tile = number % args.row_tiles;
    apart = args.unsplit_items != 0;
    from_split_items = number - args.unsplit_items;
  }
  u32 tokens = args.query_len;
  item.query_begin = item.request * args.query_len;
  if (args.query_starts != nullptr) {
    item.query_begin = static_cast<u32>(args.query_starts[item.request]);
    tokens = static_cast<u32>(args.query_starts[item.request + 1]) - item.query_begin;
  }
  const u32 rank = kBlocks == 1 ? 0 : device::cluster_rank();
  const int in_request = static_cast<int>(tokens * args.heads);
  const int first = static_cast<int>(row_tile * kRowTile);
  item.rows = first < in_request ? in_request : 0;
  item.first_row = first + static_cast<int>(rank * kColumns);
  item.last_row = smaller(first + static_cast<int>(kRowTile), in_request) - 1;
  item.tokens = static_cast<int>(tokens);
  const u32 row = item.query_row(args);
  const u64 reduce_row = apart ? from_split_items * kRowTile + rank * kColumns : row;
  item.stored_at = item.splits == 1 ? row : static_cast<u32>(reduce_row * item.splits + item.split);
  return item;
}

__device__ __forceinline__ void find_keys(Item& item, const Args& args, int length) {
  // No further than the table names pages.
  const int given = smaller(length, static_cast<int>(args.table_width * kPageKeys));
  item.see_from = given - item.tokens + 1;
  const int seen = item.see_from + item.last_row / static_cast<int>(args.heads);
  item.keys = item.none() || seen < 0 ? 0 : seen;
  const int tiles = (item.keys + static_cast<int>(kTileKeys) - 1) / static_cast<int>(kTileKeys);
  const int a_split = (tiles + static_cast<int>(item.splits) - 1) / static_cast<int>(item.splits);
  item.first_tile = smaller(static_cast<int>(item.split) * a_split, tiles);
  item.last_tile = smaller(item.first_tile + a_split, tiles);
}

}  // namespace kiln::kernels::kimi_k3_mla::attend
