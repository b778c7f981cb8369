// What attend.cu and attend_sm90a.cu share: all but the matrix units.
//
// A block, or a pair of them, works on some packed rows of one request against a split of its keys,
// 128 keys at a time. One warp brings pages by tensor map, a pair's each half of them to both; two
// warpgroups score a page each, write weights as E4M3 and sum 256 dims each. Weights are relative
// to a reference of their column, which the warpgroups agree on anew only when one does not fit
// E4M3: in the first tile, and when a score rises by some octaves. It never falls. Sums of a tile
// start at zero, since the matrix units keep few bits of a sum, and are added to the outputs in
// fp32.
#pragma once

#include "kernel_src/device/ptx_grid_dependency.cuh"
#include "kernel_src/device/ptx_registers.cuh"
#include "kernel_src/kimi_k3_mla/attend_pages.cuh"
#include "kernel_src/kimi_k3_mla/attend_tiles.cuh"

namespace kiln::kernels::kimi_k3_mla::attend {

// With wgmma, a block of 16 rows leaves room beside it for one of the reducer's, of 256 threads
// with 64 registers each, which is then there when attention ends. What a thread starts with, 128
// rather than 168, is told by the launch bounds.
constexpr bool kFewRows = kRowTile == 16;
constexpr u32 kBoundThreads = kFewRows ? 512 : kBlockThreads;
template <class Products>
constexpr bool kLeavesRoom = kFewRows ? Products::kGoesOn : false;
template <class Products>
constexpr int kConsumerRegisters = kLeavesRoom<Products> ? 176 : 240;
template <class Products>
constexpr int kProducerRegisters = kLeavesRoom<Products> ? 32 : 24;
// Consumers and the warp that brings pages: the query is there, and barriers are.
constexpr u32 kReadyThreads = kConsumerThreads + 32;

__device__ __forceinline__ void done_with(u32 stage) {
  __syncwarp();
  const u32 lane = threadIdx.x % 32;
  if constexpr (kBlocks == 1) {
    if (lane == 0) device::barrier_arrive(empty_at(stage));
  } else if (lane < kBlocks) {
    device::barrier_arrive_after_reads(device::address_in_block(empty_at(stage), lane));
  }
}

// Whether the next tile's scores start right behind the last values of this one, before these are
// added up. A block alone does not gain by it; with 64 columns there are no registers for it.
template <class Products>
constexpr bool kEarly = kRowTile == 96 ? Products::kGoesOn : false;

// Starts the products with a page, whatever lies there: what is no key is masked later, and
// products under a condition would not overlap with anything.
template <class Products>
__device__ __forceinline__ void start_page(float (&scores)[kHeld], const Turn& turn, bool brought) {
  if (brought) wait_for(full_at(turn.stage), turn.parity);
  start_scores<Products>(scores, page_at(turn.stage));
}

// All tiles of the block.
template <class Products>
__device__ __forceinline__ void attend_to_tiles(Columns& columns, Outputs& outputs,
                                                const Args& args, const Item& item) {
  constexpr bool early = kEarly<Products>;
  // What is known to be the same in all lanes names matrices by uniform registers.
  const u32 half = device::from_first_lane(threadIdx.x / 128);
  const int in_page = static_cast<int>(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4);
  // Only the last tiles hold keys that some row does not see.
  const int all_see =
      smaller(item.see_from + item.first_row / static_cast<int>(args.heads), item.keys);
  // The page that this warpgroup scores, and the other one of the tile.
  Turn own(half), other(1 - half);
  int own_page = item.first_tile * 2 + static_cast<int>(half);
  const int pages_end = item.pages_end();
  float scores[kHeld];
  if constexpr (early) start_page<Products>(scores, own, own_page < pages_end);
#pragma unroll 1
  for (int tile = item.first_tile; tile < item.last_tile; ++tile) {
    if constexpr (!early) start_page<Products>(scores, own, own_page < pages_end);
    Products::wait(scores);
    float exponents[kHeld];
    scale(exponents, scores, columns, args.score_scale);
    const int first_key = tile * static_cast<int>(kTileKeys);
    if (first_key + static_cast<int>(kTileKeys) > all_see)
      mask(exponents, args, item, first_key + static_cast<int>(half * kPageKeys) + in_page);
    const u32 weights = shared_at(kAt.weights) + static_cast<u32>(tile - item.first_tile) % 2 *
                                                     (kTerms * kColumns * kTileKeys);
    const u32 own_stage = own.stage, other_stage = other.stage, other_parity = other.parity;
    own.next();
    own.next();
    other.next();
    other.next();
    own_page += 2;
    const u32 own_at = page_at(own_stage), other_at = page_at(other_stage);
    const u32 pages[2] = {half == 0 ? own_at : other_at, half == 0 ? other_at : own_at};
    // Before weights are made, which is why 64 columns take 2 to 4 % less than after it.
    if (tile * 2 + 1 - static_cast<int>(half) < pages_end)
      wait_for(full_at(other_stage), other_parity);
    if (item.keys - first_key < static_cast<int>(kTileKeys)) {
      device::barrier_sync(kConsumerBarrier, kConsumerThreads);  // all scores are there
      clear_values(own_at, item.keys - first_key - static_cast<int>(half * kPageKeys));
    }
    float sums[kOwn];
    weigh(sums, exponents, weights, half);
    Products::publish();
    const bool start = tile == item.first_tile;
    if (device::barrier_any(kConsumerBarrier, kConsumerThreads, start || !fit(exponents))) {
      set_references(exponents, columns, outputs, start);
      weigh(sums, exponents, weights, half);
      Products::publish();
      device::barrier_sync(kConsumerBarrier, kConsumerThreads);
    }
#pragma unroll
    for (u32 i = 0; i < kOwn; ++i) columns.sum[i] += sums[i];
    add_values<Products, early ? 1 : 0>(outputs, weights, pages, [&] {
      if constexpr (early) start_page<Products>(scores, own, own_page < pages_end);
    });
    done_with(own_stage);
    done_with(other_stage);
  }
  if constexpr (early) Products::wait(scores);
}

// Sums of all threads, in the order of warps, over the weights, which nobody needs any more.
__device__ __forceinline__ void add_up_sums(Columns& columns) {
  const u32 lane = threadIdx.x % 32;
  const u32 at = shared_at(kAt.weights);
  device::barrier_sync(kConsumerBarrier, kConsumerThreads);
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
#pragma unroll
    for (u32 across = 4; across < 32; across *= 2)
      columns.sum[own] += float_of(device::from_lane_across(bits_of(columns.sum[own]), across));
    if (lane < 4)
      device::store_shared_4(at + (threadIdx.x / 32 * kColumns + column_of(own)) * 4,
                             bits_of(columns.sum[own]));
  }
  device::barrier_sync(kConsumerBarrier, kConsumerThreads);
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
    columns.sum[own] = 0;
#pragma unroll
    for (u32 warp = 0; warp < kConsumerThreads / 32; ++warp)
      columns.sum[own] +=
          float_of(device::load_shared_4(at + (warp * kColumns + column_of(own)) * 4));
  }
}

// To the output, or to the workspace for the reducer. There is one warp a scheduler, so that what
// waits for a column before, or is computed anew for it, shows in a short call's time.
__device__ __forceinline__ void store(const Columns& columns, const Outputs& outputs,
                                      const Args& args, const Item& item) {
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32 % 4;
  const u32 first_dim = threadIdx.x / 128 * 256 + warp * 16 + lane / 4 * 2;
  const bool whole = item.splits == 1;
  const int rows = item.rows - item.first_row;  // from the block's first on
  u16* const to =
      (whole ? args.output : args.partial_outputs) + u64{item.stored_at} * kLatentDim + first_dim;
  float factors[kOwn];
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own)  // a row that sees no key has zeros for output
    factors[own] = columns.sum[own] == 0
                       ? 0
                       : device::reciprocal(columns.sum[own]) * (whole ? args.output_scale : 1.0f);
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
    const u32 column = column_of(own);
    // Where a split has no weight the reducer looks no further.
    if (static_cast<int>(column) < rows && (whole || columns.sum[own] != 0)) {
      u16* const row = to + column * item.splits * kLatentDim;
#pragma unroll
      for (u32 block = 0; block < kDimBlocks; ++block) {
        const float* dims = outputs.dims[block] + own / 2 * 4 + own % 2;
        *reinterpret_cast<u32*>(row + block * 64) =
            device::bf16x2_of_floats(dims[0] * factors[own], dims[2] * factors[own]);
      }
    }
  }
  if (whole || threadIdx.x >= 128 || lane >= 4) return;
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
    const u32 column = column_of(own);
    if (own % 4 != warp || static_cast<int>(column) >= rows) continue;
    const u32 at = item.stored_at + column * item.splits;
    args.partial_maxima[at] = kWeightShift - columns.shift[own];
    args.partial_sums[at] = columns.sum[own] * (1.0f / (1 << static_cast<int>(kWeightShift)));
  }
}

template <class Products>
__device__ __forceinline__ void attend(const TensorMap& latent, const TensorMap& rope,
                                       const Args& args) {
  const bool consumes = threadIdx.x < kConsumerThreads;
  const bool brings = !consumes && threadIdx.x < kReadyThreads;
  // What comes from memory is asked for before any of it is waited for.
  Item item = rows_of_block(args);
  const int length = static_cast<int>(device::load_4(args.seq_lens + item.request));
  if (brings) ask_for_table(args, item);
  Query query;
  if (consumes) load_query(query, args, item);
  if (threadIdx.x == kConsumerThreads) {
#pragma unroll
    for (u32 stage = 0; stage < kStages; ++stage) {
      device::barrier_init(full_at(stage), 1);
      device::barrier_init(empty_at(stage), kConsumerThreads / 32 * kBlocks);
    }
    device::fence_barrier_init();
  }
  if constexpr (kBlocks > 1) {
    __syncwarp();
    device::cluster_arrive();
    device::cluster_wait();
  }
  find_keys(item, args, length);
  device::allow_next_kernel();  // once all blocks have started; it waits for what they store
  if (item.none()) {
    // Nothing is written for rows that no request has.
  } else if (!consumes) {
    device::fewer_registers<kProducerRegisters<Products>>();
    if (brings) {
      __syncwarp();
      device::barrier_arrive_of_warp(kConsumerBarrier, kReadyThreads);
      bring_pages(latent, rope, args, item);
    }
  } else {
    device::more_registers<kConsumerRegisters<Products>>();
    keep_query(query);
    if (threadIdx.x < kColumns)
      device::store_shared_4(shared_at(kAt.maxima) + threadIdx.x * 4,
                             static_cast<u32>(ordered(static_cast<int>(bits_of(kNoMaximum)))));
    Products::publish();
    device::barrier_sync(kConsumerBarrier, kReadyThreads);
    Columns columns;
    Outputs outputs;
#pragma unroll
    for (u32 own = 0; own < kOwn; ++own) {
      columns.shift[own] = 0;
      columns.sum[own] = 0;
    }
#pragma unroll
    for (u32 i = 0; i < kDimBlocks * kHeld; ++i) outputs.dims[i / kHeld][i % kHeld] = 0;
    attend_to_tiles<Products>(columns, outputs, args, item);
    add_up_sums(columns);
    store(columns, outputs, args, item);
  }
  if constexpr (kBlocks > 1) {  // a block's barriers must be there until its pair is done with them
    __syncwarp();
    device::cluster_arrive_release();
    device::cluster_wait();
  }
}

}  // namespace kiln::kernels::kimi_k3_mla::attend
