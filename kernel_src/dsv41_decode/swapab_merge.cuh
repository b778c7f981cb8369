// What the blocks of a cluster send each other, and the token's output made of it.
//
// Unit u of 8 heads by 32 elements is finished by block u % kTiles.
#pragma once

#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/dsv41_decode/swapab_products.cuh"
#include "kernel_src/dsv41_decode/swapab_records.cuh"
#include "kernel_src/shared/rope.hpp"
#include "kernel_src/shared/ue8m0.hpp"

namespace kiln::kernels::dsv41_decode::swapab {

constexpr u32 kUnits = units(kHeads);
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

// Eight elements of one head: `first` to `first` + 3 of 32, and those 8 further on.
struct Share {
  u32 unit;  // kUnits or more: nothing to do
  u32 head;
  u32 first;
  float sink;
  float cosines[4];
  float sines[4];
};

constexpr u32 kFirstRopeBlock = (dsv41::kHeadDim - dsv41::kRopeDim) / kOutputBlock;

// What is read of global memory for it, early.
__device__ __forceinline__ Share share_of(const Args& args, u64 position, u32 unit) {
  Share share{};
  share.unit = unit;
  share.head = share.unit / 16 * 8 + threadIdx.x / 4 % 8;
  share.first = threadIdx.x % 4 / 2 * 16 + threadIdx.x % 2 * 4;
  share.sink = float_of(0xff800000u);
  if (share.unit >= kUnits) return share;
  if (args.sinks != nullptr) share.sink = args.sinks[share.head];
  const u32 block = share.unit % 16;
  if (block >= kFirstRopeBlock) {
    const float* angles = args.cos_sin + position * dsv41::kRopeDim +
                          (block - kFirstRopeBlock) * (kOutputBlock / 2) + share.first / 2;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      share.cosines[i] = angles[i / 2 * 4 + i % 2];
      share.sines[i] = -angles[dsv41::kRopeDim / 2 + i / 2 * 4 + i % 2];
    }
  }
  return share;
}

__device__ __forceinline__ void finish(const Args& args, const Share& share, u32 token, bool wanted,
                                       u32 lane) {
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
  if (share.unit % 16 >= kFirstRopeBlock) {
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      const float even = values[2 * j];
      const float odd = values[2 * j + 1];
      values[2 * j] = rotated_even(even, odd, share.cosines[j], share.sines[j]);
      values[2 * j + 1] = rotated_odd(even, odd, share.cosines[j], share.sines[j]);
    }
  }
  float amax = kUe8m0AmaxFloor;
#pragma unroll
  for (u32 j = 0; j < 8; ++j) amax = device::larger(amax, float_of(magnitude_bits(values[j])));
#pragma unroll
  for (u32 across = 1; across < 4; across *= 2)
    amax = device::larger(amax, float_of(device::from_lane_across(bits_of(amax), across)));
  const u32 code = ue8m0_for_e4m3(amax);
  const float reciprocal = ue8m0_reciprocal(code);
  u32 words[2];
#pragma unroll
  for (u32 j = 0; j < 2; ++j)
    words[j] =
        device::e4m3x2_of_floats(values[4 * j] * reciprocal, values[4 * j + 1] * reciprocal) |
        device::e4m3x2_of_floats(values[4 * j + 2] * reciprocal, values[4 * j + 3] * reciprocal)
            << 16;
  // A warp has the 8 heads of one block of 32 elements: their scales are two words.
  u32 codes = code << (lane / 4 % 4 * 8);
  codes |= device::from_lane_across(codes, 4);
  codes |= device::from_lane_across(codes, 8);
  if (!wanted) return;
  const u32 in_group = share.unit % 16 * 8 + share.head % 8;  // which of the group's 128 blocks
  u8* output = args.output + token * args.output_stride_bytes +
               (share.unit / 16 * 128 + in_group) * kOutputBlock + share.first;
  *reinterpret_cast<u32*>(output) = words[0];
  *reinterpret_cast<u32*>(output + 8) = words[1];
  if (lane % 16 == 0)
    args.output_scales[token + share.unit / 16 * args.scale_group_stride_words +
                       in_group / 4 * args.scale_column_stride_words] = codes;
}

}  // namespace kiln::kernels::dsv41_decode::swapab
