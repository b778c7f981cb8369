// What the blocks of a cluster send each other, and the token's output made of it.
//
// Unit u of 8 heads by 32 elements is finished by block u % tiles.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/dsv41_decode/output.cuh"
#include "kernel_src/dsv41_decode/swapab_products.cuh"
#include "kernel_src/dsv41_decode/swapab_records.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

// Elements `half` * 16 + 2 k, the next one, and the two from 8 further on, of a head in a unit, k
// below 4. They change places by head, so that lanes use all banks.
__device__ __forceinline__ u32 in_unit(u32 head, u32 half, u32 k) {
  return head % 8 * 128 + ((half * 4 + k) ^ head % 8) * 16;
}

// Bytes from the start of what landed to a unit of the tile of block `rank`.
template <u32 tiles>
__device__ __forceinline__ u32 landed_unit(u32 rank, u32 unit) {
  return (rank * most_units(kHeads, tiles) + unit / tiles) * kUnitBytes;
}

// A lane has two elements of each of two heads. The lane whose elements are theirs' neighbours
// takes one head and gives the other, so that each sends 16 bytes.
template <Record record, u32 tiles>
__device__ __forceinline__ void send_outputs(const OutputSums& sums, u32 warp, u32 lane, u32 rank) {
  const u32 g = lane / 4;
  const u32 k = element_at<record>(g & ~2u) / 2;
  const bool odd = g & 2u;  // are its elements and its head
#pragma unroll
  for (u32 m = 0; m < 2; ++m)
#pragma unroll
    for (u32 n = 0; n < kHeadTiles; ++n) {
      // Two units have 64 elements; two warps have one.
      const u32 unit = n * 16 + warp / 4 * 4 + m * 2 + warp % 4 / 2;
      const u32 peer = device::address_in_block(shared_base(), unit % tiles);
      float own[4];
#pragma unroll
      for (u32 i = 0; i < 4; ++i) own[i] = sums[m][4 * n + i] + sums[m][kHeads / 2 + 4 * n + i];
      const float low = odd ? own[1] : own[0];
      const float high = odd ? own[3] : own[2];
      const float other_low = float_of(device::from_lane_across(bits_of(odd ? own[0] : own[1]), 8));
      const float other_high =
          float_of(device::from_lane_across(bits_of(odd ? own[2] : own[3]), 8));
      device::send_16(peer + kAt.landed + landed_unit<tiles>(rank, unit) +
                          in_unit(lane % 4 * 2 + odd, warp % 2, k),
                      odd ? other_low : low, odd ? low : other_low, odd ? other_high : high,
                      odd ? high : other_high, peer + kAt.barriers);
    }
}

// Tells all blocks the tile's maximum and sum.
template <u32 tiles>
__device__ __forceinline__ void send_sums(const Softmax& of_head, u32 head, u32 lane, u32 rank) {
  float sum = of_head.sum;
#pragma unroll
  for (u32 across = 1; across < 32; across *= 2)
    sum += float_of(device::from_lane_across(bits_of(sum), across));
  if (lane < tiles) {
    const u32 peer = device::address_in_block(shared_base(), lane);
    device::send_8(peer + kAt.sums + (rank * kHeads + head) * 8, of_head.maximum, sum,
                   peer + kAt.barriers + 16);
  }
}

// A lane finishes eight elements of a unit: four, and the four from 8 further on.
constexpr u32 kGap = 8;

__device__ __forceinline__ OutputShare share_of(const Args& args, u64 position, u32 unit) {
  return output_share<kGap>(args, position, unit, threadIdx.x % 4 / 2 * 16 + threadIdx.x % 2 * 4);
}

// What each tile's partial outputs count for in a head's.
template <u32 tiles>
struct TileWeights {
  float of_tile[tiles];
};

template <u32 tiles>
__device__ __forceinline__ TileWeights<tiles> tile_weights(const OutputShare& share) {
  Floats2 sums[tiles];
  float maximum = float_of(0xff800000u);
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    sums[tile] = *shared_at<const Floats2>(kAt.sums + (tile * kHeads + share.head) * 8);
    maximum = device::larger(maximum, sums[tile].x);
  }
  if (maximum == float_of(0xff800000u)) maximum = 0.0f;
  TileWeights<tiles> weights;
  float total = 0.0f;
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    weights.of_tile[tile] = device::power_of_2(sums[tile].x - maximum);
    total = fused_multiply_add(weights.of_tile[tile], sums[tile].y, total);
  }
  total += device::power_of_2(fused_multiply_add(share.sink, kLog2E, -maximum));
  // No slot: all is 0, whatever the sink. With one, the largest p is 1.
  const float factor = total < 0.5f ? 0.0f : kUnshift / total;
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) weights.of_tile[tile] *= factor;
  return weights;
}

template <u32 tiles>
__device__ __forceinline__ void finish(const Args& args, const OutputShare& share,
                                       const TileWeights<tiles>& weights, u32 token, bool wanted,
                                       u32 lane) {
  const u32 half = share.first / 16;
  const u32 k = share.first % 16 / 2;
  float values[8] = {};
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    const u32 from = kAt.landed + landed_unit<tiles>(tile, share.unit);
    const Words4 a = load_shared_16(from + in_unit(share.head, half, k));
    const Words4 b = load_shared_16(from + in_unit(share.head, half, k + 1));
    const u32 words[8] = {a.x, a.y, b.x, b.y, a.z, a.w, b.z, b.w};
#pragma unroll
    for (u32 j = 0; j < 8; ++j)
      values[j] = fused_multiply_add(weights.of_tile[tile], float_of(words[j]), values[j]);
  }
  write_output<kGap>(args, share, values, token, wanted, lane);
}

}  // namespace kiln::kernels::dsv41_decode::swapab
