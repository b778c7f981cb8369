// Joins the splits of a row: some warps a row for up to 32 splits, or a block for a quarter of a
// row for up to 256. A split of no weight adds nothing, whatever lies in its place.
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

// Eight dims of a split's partial output.
__device__ __forceinline__ void add(float (&sums)[8], float weight, const device::Words4& words) {
  const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
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

// By some warps a row, each for its share of the dims.
template <u32 row_warps>
__device__ __forceinline__ void reduce_by_warps(const Args& args) {
  constexpr u32 dims = kLatentDim / row_warps;  // of a warp
  constexpr u32 rounds = (dims + 255) / 256;
  const u32 warp = threadIdx.x / 32;
  const u32 lane = threadIdx.x % 32;
  const u64 row = u64{blockIdx.x} * (kWarps / row_warps) + warp / row_warps;
  const u64 to = output_row(args, row);
  if (to == none) return;
  const u64 first = row * args.splits;
  const bool mine = lane < args.splits;
  const float sum = mine ? args.partial_sums[first + lane] : 0;
  const float maximum = mine && sum != 0 ? args.partial_maxima[first + lane] : -1e30f;
  const float weight = sum * device::power_of_2(maximum - largest(maximum));
  const float all = total(weight);
  const u32 dim = warp % row_warps * dims + lane * 8;
  const bool working = lane * 8 < dims;
  float sums[rounds][8] = {};
  const u16* from = args.partial_outputs + first * kLatentDim + dim;
#pragma unroll 4
  for (u32 split = 0; split < args.splits; ++split) {
    const float counts = __shfl_sync(0xffffffffu, weight, static_cast<int>(split));
    if (counts == 0 || !working) continue;
#pragma unroll
    for (u32 i = 0; i < rounds; ++i)
      add(sums[i], counts, device::load_16(from + split * kLatentDim + i * 256));
  }
  if (!working) return;
  const float factor = all == 0 ? 0 : args.output_scale / all;
#pragma unroll
  for (u32 i = 0; i < rounds; ++i)
    device::store_16(args.output + to * kLatentDim + dim + i * 256, rounded(sums[i], factor));
}

// By a block, for a quarter of the dims: 16 threads a split, 16 splits at once.
__device__ __forceinline__ void reduce_by_block(const Args& args) {
  __shared__ float weights[kMostSplits];
  __shared__ float from_warps[kWarps];
  __shared__ float partial[16][kQuarterDims];
  const u64 row = blockIdx.x;
  const u64 to = output_row(args, row);
  if (to == none) return;
  const u32 thread = threadIdx.x;
  const u64 first = row * args.splits;
  const bool mine = thread < args.splits;
  const float sum = mine ? args.partial_sums[first + thread] : 0;
  const float maximum = mine && sum != 0 ? args.partial_maxima[first + thread] : -1e30f;
  const float of_warp = largest(maximum);
  if (thread % 32 == 0) from_warps[thread / 32] = of_warp;
  __syncthreads();
  float of_all = from_warps[0];
#pragma unroll
  for (u32 i = 1; i < kWarps; ++i) of_all = device::larger(of_all, from_warps[i]);
  const float weight = sum * device::power_of_2(maximum - of_all);
  weights[thread] = weight;
  const float warp_total = total(weight);
  __syncthreads();
  if (thread % 32 == 0) from_warps[thread / 32] = warp_total;
  float sums[8] = {};
  const u32 dim = thread % 16 * 8;
  const u16* from = args.partial_outputs + first * kLatentDim + blockIdx.y * kQuarterDims + dim;
#pragma unroll 4
  for (u32 split = thread / 16; split < args.splits; split += 16)
    if (weights[split] != 0) add(sums, weights[split], device::load_16(from + split * kLatentDim));
#pragma unroll
  for (u32 i = 0; i < 8; ++i) partial[thread / 16][dim + i] = sums[i];
  __syncthreads();
  if (thread >= kQuarterDims / 2) return;
  float all = 0;
#pragma unroll
  for (u32 i = 0; i < kWarps; ++i) all += from_warps[i];
  float low = 0, high = 0;
#pragma unroll
  for (u32 i = 0; i < 16; ++i) {
    low += partial[i][thread * 2];
    high += partial[i][thread * 2 + 1];
  }
  const float factor = all == 0 ? 0 : args.output_scale / all;
  *reinterpret_cast<u32*>(args.output + to * kLatentDim + blockIdx.y * kQuarterDims + thread * 2) =
      device::bf16x2_of_floats(low * factor, high * factor);
}

__device__ __forceinline__ void reduce(const Args& args) {
  device::wait_for_previous_kernels();
  if constexpr (kQuarters) {
    reduce_by_block(args);
  } else {
    reduce_by_warps<kRowWarps>(args);
  }
}

}  // namespace kiln::kernels::kimi_k3_mla::reduce
