// Joins the splits of a row: some warps a row for up to 32 splits, or a block for a quarter of a
// row for up to 256. What there is of them is asked for before any of it is waited for. A split of
// no weight adds nothing, whatever lies in its place.
#pragma once

#include "jit/key.cuh"
#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_grid_dependency.cuh"
#include "kernel_src/device/ptx_memory.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/kimi_k3_mla/args.hpp"
#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels::kimi_k3_mla::reduce {

constexpr u32 kWarps = 8;
constexpr u32 kBlockThreads = kWarps * 32;
// Of a multiprocessor: 64 registers a thread, for which there is room beside attention.
constexpr u32 kLeastBlocks = 4;
constexpr u32 kRowWarps = key::row_warps;  // 0: a block for a quarter of a row
constexpr bool kQuarters = kRowWarps == 0;
constexpr u32 kMostSplits = kQuarters ? 256 : 32;
constexpr u32 kQuarterDims = kLatentDim / 4;

__device__ __forceinline__ float largest(float value) {
#pragma unroll
  for (u32 across = 16; across != 0; across /= 2)
    value = device::larger(value, float_of(device::from_lane_across(bits_of(value), across)));
  return value;
}
__device__ __forceinline__ float total(float value) {
#pragma unroll
  for (u32 across = 16; across != 0; across /= 2)
    value += float_of(device::from_lane_across(bits_of(value), across));
  return value;
}

__device__ __forceinline__ float low_bf16(u32 pair) {
  return float_of(pair << 16);
}
__device__ __forceinline__ float high_bf16(u32 pair) {
  return float_of(pair & 0xffff0000u);
}

// Eight dims of a split's partial output, whatever they are if it has no weight.
__device__ __forceinline__ void add(float (&sums)[8], float weight, const device::Words4& words) {
  u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    if (weight == 0) pairs[i] = 0;
    sums[i * 2] += weight * low_bf16(pairs[i]);
    sums[i * 2 + 1] += weight * high_bf16(pairs[i]);
  }
}

__device__ __forceinline__ device::Words4 rounded(const float (&sums)[8], float factor) {
  return {device::bf16x2_of_floats(sums[0] * factor, sums[1] * factor),
          device::bf16x2_of_floats(sums[2] * factor, sums[3] * factor),
          device::bf16x2_of_floats(sums[4] * factor, sums[5] * factor),
          device::bf16x2_of_floats(sums[6] * factor, sums[7] * factor)};
}

// The packed row of the output that a row of the workspace stands for; `none` where there is none.
constexpr u64 none = ~u64{0};
__device__ __forceinline__ u64 output_row(const Args& args, u64 row) {
  if (args.unsplit_items == 0) {
    const u64 rows =
        u64{args.query_starts == nullptr ? args.batch * args.query_len
                                         : static_cast<u32>(args.query_starts[args.batch])} *
        args.heads;
    return row < rows ? row : none;
  }
  const u32 item = args.unsplit_items + static_cast<u32>(row / attend::kWideRows);
  const u32 request = item / args.row_tiles;
  if (request >= args.batch) return none;
  u32 begin = request * args.query_len;
  u32 tokens = args.query_len;
  if (args.query_starts != nullptr) {
    begin = static_cast<u32>(args.query_starts[request]);
    tokens = static_cast<u32>(args.query_starts[request + 1]) - begin;
  }
  const u64 in_request = u64{item % args.row_tiles} * attend::kWideRows + row % attend::kWideRows;
  return in_request < u64{tokens} * args.heads ? u64{begin} * args.heads + in_request : none;
}

__device__ __forceinline__ float scaled(float all, float output_scale) {
  return all == 0 ? 0 : output_scale * device::reciprocal(all);
}

// By some warps a row, each for its share of the dims; some lanes a split.
template <u32 row_warps>
__device__ __forceinline__ void reduce_by_warps(const Args& args) {
  constexpr u32 dims = kLatentDim / row_warps;  // of a warp
  constexpr u32 rounds = (dims + 255) / 256;
  constexpr u32 lanes = dims / rounds / 8;                // of a split
  constexpr u32 at_once = 32 / lanes;                     // splits
  constexpr u32 ahead = row_warps == 1 ? 3 : 8 / rounds;  // of a lane, on their way
  const u32 warp = threadIdx.x / 32;
  const u32 lane = threadIdx.x % 32;
  const u64 row = u64{blockIdx.x} * (kWarps / row_warps) + warp / row_warps;
  const u64 first = row * args.splits;
  const u32 dim = warp % row_warps * dims + lane % lanes * 8;
  const u16* from = args.partial_outputs + (first + lane / lanes) * kLatentDim + dim;
  device::Words4 values[ahead][rounds];
  device::wait_for_previous_kernels();
  const u64 to = output_row(args, row);
  const u32 splits = to == none ? 0 : args.splits;
  const auto load = [&](u32 begin) {
#pragma unroll
    for (u32 n = 0; n < ahead; ++n)
#pragma unroll
      for (u32 i = 0; i < rounds; ++i)
        values[n][i] = device::load_16_if(begin + n * at_once + lane / lanes < splits,
                                          from + (begin + n * at_once) * kLatentDim + i * 256);
  };
  load(0);
  const bool mine = lane < splits;
  const float sum = mine ? args.partial_sums[first + lane] : 0;
  const float reference = mine ? args.partial_maxima[first + lane] : 0;
  // Without a branch here, some loads would come behind shuffles, which wait for others.
  if (to == none) return;
  const float maximum = sum != 0 ? reference : -1e30f;
  const float weight = sum * device::power_of_2(maximum - largest(maximum));
  const float factor = scaled(total(weight), args.output_scale);
  float sums[rounds][8] = {};
#pragma unroll 1
  for (u32 begin = 0;;) {
#pragma unroll
    for (u32 n = 0; n < ahead; ++n) {
      const float counts = __shfl_sync(0xffffffffu, weight,
                                       static_cast<int>((begin + n * at_once + lane / lanes) % 32));
#pragma unroll
      for (u32 i = 0; i < rounds; ++i) add(sums[i], counts, values[n][i]);
    }
    begin += ahead * at_once;
    if (begin >= splits) break;
    load(begin);
  }
#pragma unroll
  for (u32 i = 0; i < rounds; ++i) {
    if constexpr (at_once > 1)
#pragma unroll
      for (u32 k = 0; k < 8; ++k)
        sums[i][k] += float_of(device::from_lane_across(bits_of(sums[i][k]), lanes));
    if (lane < lanes)
      device::store_16(args.output + to * kLatentDim + dim + i * 256, rounded(sums[i], factor));
  }
}

// By a block, for a quarter of the dims: 16 threads a split, 16 splits at once.
__device__ __forceinline__ void reduce_by_block(const Args& args) {
  constexpr u32 at_once = kBlockThreads / 16;
  constexpr u32 ahead = 9;  // of a thread, on their way: all where there are no more than SMs
  __shared__ float weights[kMostSplits];
  __shared__ float from_warps[2][kWarps];
  __shared__ float partial[kWarps][kQuarterDims];
  const u32 thread = threadIdx.x;
  const u32 own = thread / 16;  // first split
  const u32 dim = thread % 16 * 8;
  const u32 two = thread % (kQuarterDims / 2) * 2;  // dims of the output
  const u64 row = blockIdx.x;
  const u64 first = row * args.splits;
  const u16* from =
      args.partial_outputs + (first + own) * kLatentDim + blockIdx.y * kQuarterDims + dim;
  device::Words4 values[ahead];
  device::wait_for_previous_kernels();
#pragma unroll
  for (u32 n = 0; n < ahead; ++n)
    values[n] =
        device::load_16_if(own + n * at_once < args.splits, from + n * at_once * kLatentDim);
  const bool mine = thread < args.splits;
  const float sum = mine ? args.partial_sums[first + thread] : 0;
  const float reference = mine ? args.partial_maxima[first + thread] : 0;
  const u64 to = output_row(args, row);
  const float maximum = sum != 0 ? reference : -1e30f;
  const float of_warp = largest(maximum);
  if (thread % 32 == 0) from_warps[0][thread / 32] = of_warp;
  __syncthreads();
  float of_all = from_warps[0][0];
#pragma unroll
  for (u32 i = 1; i < kWarps; ++i) of_all = device::larger(of_all, from_warps[0][i]);
  const float weight = sum * device::power_of_2(maximum - of_all);
  weights[thread] = weight;
  const float warp_total = total(weight);
  if (thread % 32 == 0) from_warps[1][thread / 32] = warp_total;
  __syncthreads();
  float all = 0;
#pragma unroll
  for (u32 i = 0; i < kWarps; ++i) all += from_warps[1][i];
  const float factor = scaled(all, args.output_scale);
  float sums[8] = {};
#pragma unroll
  for (u32 n = 0; n < ahead; ++n) add(sums, weights[own + n * at_once], values[n]);
#pragma unroll 1
  for (u32 split = own + ahead * at_once; split < args.splits; split += at_once)
    add(sums, weights[split], device::load_16(from + (split - own) * kLatentDim));
#pragma unroll
  for (u32 k = 0; k < 8; ++k) sums[k] += float_of(device::from_lane_across(bits_of(sums[k]), 16));
  if (thread % 32 < 16) {
#pragma unroll
    for (u32 k = 0; k < 8; ++k) partial[thread / 32][dim + k] = sums[k];
  }
  __syncthreads();
  float low = 0, high = 0;
#pragma unroll
  for (u32 i = 0; i < kWarps; ++i) {
    low += partial[i][two];
    high += partial[i][two + 1];
  }
  if (to != none && thread < kQuarterDims / 2)
    *reinterpret_cast<u32*>(args.output + to * kLatentDim + blockIdx.y * kQuarterDims + two) =
        device::bf16x2_of_floats(low * factor, high * factor);
}

__device__ __forceinline__ void reduce(const Args& args) {
  if constexpr (kQuarters) {
    reduce_by_block(args);
  } else {
    reduce_by_warps<kRowWarps>(args);
  }
}

}  // namespace kiln::kernels::kimi_k3_mla::reduce
