// What swapab.cu and swapab_sm90a.cu share: all but the matrix units.
//
// A block works on one tile of one token's slots: 64, or 128 compressed ones where tokens are many;
// the blocks of a token are a cluster. Slots, or an output's elements, lie on the matrix units'
// rows and heads on their columns, so that 16 or 32 heads leave no row empty. Records become bf16
// once, on their way to shared memory; S = KV Q^T reads them by rows and O^T = KV^T P by columns. P
// keeps two bf16 terms. Then each block adds up its share of the token's output from what all
// blocks sent it, in order of rank.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/device/ptx_grid_dependency.cuh"
#include "kernel_src/dsv41_decode/swapab_merge.cuh"
#include "kernel_src/dsv41_decode/swapab_products.cuh"
#include "kernel_src/dsv41_decode/swapab_records.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

template <class Products, u32 tiles, u32 tile, Record record, u32 page_slots, u32 width>
__device__ __forceinline__ void work_on_tile(const Args& args, const CacheArgs& cache, u32 token,
                                             u32 rank, u32 first_slot) {
  const u32 warp = threadIdx.x / 32;
  const u32 lane = threadIdx.x % 32;
  const u32 arrived = shared_base() + kAt.barriers;  // all partial outputs that are sent here
  const u32 leave = arrived + 8;                     // to send to any block
  const u32 summed = arrived + 16;                   // all tiles' maxima and sums
  if (threadIdx.x == 0) {
    device::barrier_init(arrived, 1);
    device::barrier_init(leave, tiles);
    device::barrier_init(summed, 1);
    device::fence_barrier_init();
    device::barrier_arrive_expect(arrived,
                                  tiles * parcels_of<tiles>(rank) * (kParcelBytes + kFactorBytes));
    device::barrier_arrive_expect(summed, tiles * kHeads * 8);
  }
  __syncthreads();
  device::cluster_arrive();
  device::wait_for_previous_kernels();
  const Slot slot = look_up<tile, width>(cache, token, first_slot, warp, lane);
  const u64 given_position = static_cast<u64>(args.positions[token]);
  QueryShare query = load_query(args, token, warp, lane);
  const auto gathered = gather<tile, record, page_slots>(cache, slot, warp, lane);
  // Unsigned: negative positions are too large as well. Nothing is written for them.
  const bool wanted = given_position < args.rope_positions;
  const u64 position = wanted ? given_position : 0;
  store_query<record>(args, query, position, warp, lane);
  store_records<tile, record>(gathered, warp, lane);
  Products::publish();
  __syncthreads();
  device::allow_next_kernel();
  scores<Products, tile>(warp, lane);
  __syncthreads();
  constexpr u32 rounds = kHeads / kWarps;
  Softmax of_heads[rounds];
#pragma unroll
  for (u32 i = 0; i < rounds; ++i) of_heads[i] = softmax<Products, tile>(i * kWarps + warp, lane);
  Products::publish();
  const OutputShare share = share_of(args, position, unit_of<tiles>(warp, rank));
  __syncthreads();
  device::cluster_wait();  // all blocks have made their barriers
  // Query and scores are done with: others may send to where they were.
  if (warp < tiles && lane == 0)
    device::barrier_arrive_after_reads(device::address_in_block(leave, warp));
#pragma unroll
  for (u32 i = 0; i < rounds; ++i) send_sums<tiles>(of_heads[i], i * kWarps + warp, lane, rank);
  OutputSums sums = {};
  start_outputs<Products, tile>(sums, warp);
  while (!device::barrier_try_wait_cluster(leave, 0)) {
  }
  send_outputs<Products, record, tiles>(sums, warp, lane, rank);
  if (share.unit >= kUnits) return;  // whole warps
  while (!device::barrier_try_wait_cluster(summed, 0)) {
  }
  TileWeights<tiles> weights = tile_weights<tiles>(share);
  while (!device::barrier_try_wait_cluster(arrived, 0)) {
  }
  finish(args, share, weights, token, wanted, lane);
  // Only clusters of 2 or 3 blocks have more units than warps.
  if constexpr (2 * most_parcels(kHeads, tiles) > kWarps) {
    for (u32 index = warp + kWarps; unit_of<tiles>(index, rank) < kUnits; index += kWarps) {
      const OutputShare next = share_of(args, position, unit_of<tiles>(index, rank));
      weights = tile_weights<tiles>(next);
      finish(args, next, weights, token, wanted, lane);
    }
  }
}

template <class Products, u32 tiles, u32 compressed_tile>
__device__ __forceinline__ void decode_tile(const Args& args) {
  const u32 token = blockIdx.y;
  const u32 rank = blockIdx.x;
  if constexpr (kCompressedSlots != 0) {
    if (rank >= kSwaTiles) {
      work_on_tile<Products, tiles, compressed_tile, kRecord, key::page_slots, kCompressedSlots>(
          args, args.compressed, token, rank, (rank - kSwaTiles) * compressed_tile);
      return;
    }
  }
  work_on_tile<Products, tiles, kSwaTile, Record::fp8, key::swa_page_slots, kSwaSlots>(
      args, args.swa, token, rank, rank * kSwaTile);
}

// The launch's cluster says how large compressed tiles are.
template <class Products>
__device__ __forceinline__ void decode(const Args& args) {
  if constexpr (kSmallTiles != kLargeTiles) {
    if (gridDim.x == kSmallTiles) {
      decode_tile<Products, kSmallTiles, kSmallTile>(args);
      return;
    }
  }
  decode_tile<Products, kLargeTiles, kLargeTile>(args);
}

}  // namespace kiln::kernels::dsv41_decode::swapab
