// What the blocks of a cluster send each other, and the token's output made of it.
//
// Unit u of 8 heads by 32 elements is finished by block u % kTiles.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/dsv41_decode/output.cuh"
#include "kernel_src/dsv41_decode/swapab_products.cuh"
#include "kernel_src/dsv41_decode/swapab_records.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

constexpr u32 kMostUnits = (kUnits + kTiles - 1) / kTiles;  // of a block

// Elements `half` * 16 + i and + 8 of a head, i below 8, in a unit. 16-byte pieces change places by
// head, so that lanes that read use all banks.
__device__ __forceinline__ u32 in_unit(u32 head, u32 half, u32 i) {
  return head % 8 * 128 + ((half * 4 + i / 2) ^ (head & 1u)) * 16 + i % 2 * 8;
}

template <Record record>
__device__ __forceinline__ void send_outputs(const OutputSums& sums, u32 warp, u32 lane, u32 rank) {
  const u32 g = lane / 4;
  const u32 t = lane % 4;
  const u32 element = element_at<record>(g);
#pragma unroll
  for (u32 m = 0; m < 2; ++m)
#pragma unroll
    for (u32 n = 0; n < kHeadTiles; ++n) {
      // Two units have 64 elements; two warps have one.
      const u32 unit = n * 16 + warp / 4 * 4 + m * 2 + warp % 4 / 2;
      const u32 peer = device::address_in_block(shared_base(), unit % kTiles);
      const u32 to = peer + kAt.landed + (rank * kMostUnits + unit / kTiles) * kUnitBytes;
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        constexpr u32 low_terms = kHeads / 2;
        device::send_8(to + in_unit(2 * t + i, warp % 2, element),
                       sums[m][4 * n + i] + sums[m][low_terms + 4 * n + i],
                       sums[m][4 * n + i + 2] + sums[m][low_terms + 4 * n + i + 2],
                       peer + kAt.barriers);
      }
    }
}

// Tells all blocks the tile's maximum and sum.
__device__ __forceinline__ void send_sums(const Softmax& of_head, u32 head, u32 lane, u32 rank) {
  float sum = of_head.sum;
#pragma unroll
  for (u32 across = 1; across < 32; across *= 2)
    sum += float_of(device::from_lane_across(bits_of(sum), across));
  if (lane < kTiles) {
    const u32 peer = device::address_in_block(shared_base(), lane);
    device::send_8(peer + kAt.sums + (rank * kHeads + head) * 8, of_head.maximum, sum,
                   peer + kAt.barriers);
  }
}

// A lane finishes eight elements of a unit: four, and the four from 8 further on.
constexpr u32 kGap = 8;

__device__ __forceinline__ OutputShare share_of(const Args& args, u64 position, u32 unit) {
  return output_share<kGap>(args, position, unit, threadIdx.x % 4 / 2 * 16 + threadIdx.x % 2 * 4);
}

__device__ __forceinline__ void finish(const Args& args, const OutputShare& share, u32 token,
                                       bool wanted, u32 lane) {
  float maxima[kTiles];
  float totals[kTiles];
  float parts[kTiles][8];
  const u32 half = share.first / 16;
  const u32 i = share.first % 16;
#pragma unroll
  for (u32 tile = 0; tile < kTiles; ++tile) {
    const Floats2 sums = *shared_at<const Floats2>(kAt.sums + (tile * kHeads + share.head) * 8);
    maxima[tile] = sums.x;
    totals[tile] = sums.y;
    const u32 from = kAt.landed + (tile * kMostUnits + share.unit / kTiles) * kUnitBytes;
    const Words4 a = load_shared_16(from + in_unit(share.head, half, i));
    const Words4 b = load_shared_16(from + in_unit(share.head, half, i + 2));
    const u32 words[8] = {a.x, a.z, b.x, b.z, a.y, a.w, b.y, b.w};
#pragma unroll
    for (u32 j = 0; j < 8; ++j) parts[tile][j] = float_of(words[j]);
  }
  float maximum = maxima[0];
#pragma unroll
  for (u32 tile = 1; tile < kTiles; ++tile) maximum = device::larger(maximum, maxima[tile]);
  if (maximum == float_of(0xff800000u)) maximum = 0.0f;
  float total = 0.0f;
  float values[8] = {};
#pragma unroll
  for (u32 tile = 0; tile < kTiles; ++tile) {
    const float weight = device::power_of_2(maxima[tile] - maximum);
    total = fused_multiply_add(weight, totals[tile], total);
#pragma unroll
    for (u32 j = 0; j < 8; ++j) values[j] = fused_multiply_add(weight, parts[tile][j], values[j]);
  }
  total += device::power_of_2(fused_multiply_add(share.sink, kLog2E, -maximum));
  // No slot: all is 0, whatever the sink. With one, the largest p is 1.
  const float factor = total < 0.5f ? 0.0f : kUnshift / total;
#pragma unroll
  for (u32 j = 0; j < 8; ++j) values[j] *= factor;
  write_output<kGap>(args, share, values, token, wanted, lane);
}

}  // namespace kiln::kernels::dsv41_decode::swapab
