// What swapab.cu and swapab_sm90a.cu share: all but the matrix units.
//
// A block works on one tile of one token's slots, 64, 80 or 128 as the launch has it; the blocks of
// a token are a cluster. Slots, or an output's elements, lie on the matrix units' rows and heads on
// their columns, so that 16 or 32 heads leave no row empty. Records become bf16 once, on their way
// to shared memory; S = KV Q^T reads them by rows and O^T = KV^T P by columns. P keeps two bf16
// terms. Then each block adds up its share of the token's output from what all blocks sent it, in
// order of rank.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/device/ptx_grid_dependency.cuh"
#include "kernel_src/dsv41_decode/swapab_merge.cuh"
#include "kernel_src/dsv41_decode/swapab_products.cuh"
#include "kernel_src/dsv41_decode/swapab_records.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

// Brings query and records to shared memory; the token's position, or -1.
template <class T, Record record>
__device__ __forceinline__ void bring(const Args& args, const int* to_look_up, const u8* query_from,
                                      u32 rank, u32 warp, u32 lane, i64& position) {
  const u32 looked_up = device::load_4(to_look_up);
  const QueryShare query = load_query(query_from);
  __syncwarp();  // ptxas puts loads as late as it may
  const u64 given = position_of(looked_up);
  // Unsigned: negative positions are too large as well. Nothing is written for them.
  position = given < args.rope_positions ? static_cast<i64>(given) : -1;
  const QueryAngles angles =
      load_angles(args, position < 0 ? 0 : static_cast<u64>(position), warp, lane);
  const auto gathered = gather<T, record>(args, looked_up, rank, warp, lane);
  __syncwarp();
  if (kRecordsFirst<T>) store_records<T, record>(gathered, warp, lane);
  store_query<T, order_of<T, record>>(query, angles, warp, lane);
  if (!kRecordsFirst<T>) store_records<T, record>(gathered, warp, lane);
}

template <class Products, class T>
__device__ __forceinline__ void work_on_tile(const Args& args) {
  const u32 token = blockIdx.y;
  const u32 rank = blockIdx.x;
  const u32 warp = Products::warp();
  u32 lane = threadIdx.x % 32;
  const u32 barriers = shared_base() + T::at.barriers;
  if (threadIdx.x == 0) {
    device::barrier_init(barriers + kArrived, 1);
    device::barrier_init(barriers + kLeave, T::tiles);
    device::barrier_init(barriers + kSummed, 1);
    device::barrier_init(barriers + kFactored, kHeadPairs * 32);
    device::fence_barrier_init();
    const u32 parcels_here = T::tiles * parcels_of<T::tiles>(rank);
    device::barrier_arrive_expect(barriers + kArrived, parcels_here * kParcelBytes);
    device::barrier_arrive_expect(barriers + kSummed,
                                  T::tiles * kHeads * 8 + parcels_here * kFactorBytes);
  }
  __syncthreads();
  // What can be known before the wait for previous kernels is known before it.
  const int* to_look_up =
      device::worked_out(where_to_look_up<T>(args, token, rank, warp, lane), lane);
  const u8* query_from = device::worked_out(where_query_is(args, token, warp, lane), lane);
  device::cluster_arrive();
  device::cluster_wait();  // all blocks have made their barriers
  device::wait_for_previous_kernels();
  i64 given_position;
  const bool swa = place_in_list<T>(rank, warp).swa;
  if (kRecord == Record::fp8 || swa) {
    bring<T, Record::fp8>(args, to_look_up, query_from, rank, warp, lane, given_position);
  } else {
    bring<T, kRecord>(args, to_look_up, query_from, rank, warp, lane, given_position);
  }
  const bool wanted = given_position >= 0;
  const u64 position = wanted ? static_cast<u64>(given_position) : 0;
  lane = Products::lane_after_loads(lane);
  Products::publish();
  __syncthreads();
  device::allow_next_kernel();
  scores<Products, T>(warp, lane);
  __syncthreads();
  constexpr u32 rounds = tiles_of(kHeads, heads_at_once<T>());
  Softmax of_heads[rounds];
  const bool has_head = heads_at_once<T>() <= kHeads || softmax_head<T>(0, warp, 0) < kHeads;
  if (has_head) {
#pragma unroll
    for (u32 i = 0; i < rounds; ++i) of_heads[i] = softmax<T>(softmax_head<T>(i, warp, lane), lane);
  }
  Products::publish();
  __syncthreads();
  // Query and scores are done with: others may send to where they were.
  if (warp < T::tiles && lane == 0)
    device::barrier_arrive_after_reads(device::address_in_block(barriers + kLeave, warp));
  // By the last warps, while the matrix units have products of the others.
  const u32 factored = kWarps - 1 - warp;
  Factors factors;
  if (factored < kHeadPairs) {
    factors = factors_of<T>(factored, lane);
    store_factors<T>(factors, factored, lane);
    device::barrier_arrive(barriers + kFactored);
  }
  OutputSums sums = {};
  start_outputs<Products, T>(sums[0], 0, warp);
  const OutputShare share = share_of(args, position, unit_of<T::tiles>(warp, rank));
  if (has_head) {
#pragma unroll
    for (u32 i = 0; i < rounds; ++i)
      send_sums<T>(of_heads[i], softmax_head<T>(i, warp, lane), lane, rank);
  }
  if (factored < kHeadPairs) send_inverses<T>(factors, factored, lane, rank);
  start_outputs<Products, T>(sums[1], 1, warp);
  while (!device::barrier_try_wait_cluster(barriers + kLeave, 0)) {
  }
  while (!device::barrier_try_wait(barriers + kFactored, 0)) {
  }
  const u32 k = swa ? pairs_of<order_of<T, Record::fp8>>(lane) : pairs_of<kRecord>(lane);
  send_outputs<Products, T>(sums, k, warp, lane, rank);
  if (share.unit >= kUnits) return;  // whole warps
  while (!device::barrier_try_wait_cluster(barriers + kSummed, 0)) {
  }
  Landed landed = where_landed<T>(share, lane);
  TileWeights<T::tiles> weights = tile_weights<T>(share);
  while (!device::barrier_try_wait_cluster(barriers + kArrived, 0)) {
  }
  finish<T>(args, share, weights, landed, token, wanted, lane);
  // Only clusters of 2 or 3 blocks have more units than warps.
  if constexpr (2 * most_parcels(kHeads, T::tiles) > kWarps) {
    for (u32 index = warp + kWarps; unit_of<T::tiles>(index, rank) < kUnits; index += kWarps) {
      const OutputShare next = share_of(args, position, unit_of<T::tiles>(index, rank));
      landed = where_landed<T>(next, lane);
      weights = tile_weights<T>(next);
      finish<T>(args, next, weights, landed, token, wanted, lane);
    }
  }
}

// The launch's cluster says which tiling it is.
template <class Products>
__device__ __forceinline__ void decode(const Args& args) {
  if constexpr (kSmallTiles != kLargeTiles) {
    if (gridDim.x == kSmallTiles) {
      work_on_tile<Products, Tiling<kSmallTile>>(args);
      return;
    }
  }
  if constexpr (kMediumTiles != kLargeTiles) {
    if (gridDim.x == kMediumTiles) {
      work_on_tile<Products, Tiling<kMediumTile>>(args);
      return;
    }
  }
  work_on_tile<Products, Tiling<kLargeTile>>(args);
}

}  // namespace kiln::kernels::dsv41_decode::swapab
