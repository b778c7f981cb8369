// A token's output from its final sums: inverse RoPE, MXFP8, and where the bytes go.
//
// Unit u is 32 elements, block u % 16 of a head, of the 8 heads of group u / 16. A warp finishes
// one: four lanes a head, eight elements a lane.
#pragma once

#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/dsv41_decode/common.cuh"
#include "kernel_src/shared/rope.hpp"
#include "kernel_src/shared/ue8m0.hpp"

namespace kiln::kernels::dsv41_decode {

constexpr u32 kUnits = units(kHeads);
constexpr u32 kUnitBlocks = dsv41::kHeadDim / kOutputBlock;

// A lane's elements of a unit: `first` to `first` + 3, and the four from `first` + gap on.
struct OutputShare {
  u32 unit;  // kUnits or more: nothing to do
  u32 head;  // kHeads or more, with fewer than 8: nothing to write
  u32 first;
  float sink;
  float cosines[4];
  float sines[4];
};

// What is read of global memory for it, early.
template <u32 gap>
__device__ __forceinline__ OutputShare output_share(const Args& args, u64 position, u32 unit,
                                                    u32 first) {
  OutputShare share{};
  share.unit = unit;
  share.head = unit / kUnitBlocks * kGroupHeads + threadIdx.x / 4 % kGroupHeads;
  share.first = first;
  share.sink = float_of(0xff800000u);
  if (unit >= kUnits || share.head >= kHeads) return share;
  if (args.sinks != nullptr) share.sink = args.sinks[share.head];
  const u32 block = unit % kUnitBlocks;
  if (block >= kFirstRopeBlock) {
    const float* angles = args.cos_sin + position * dsv41::kRopeDim +
                          (block - kFirstRopeBlock) * (kOutputBlock / 2) + first / 2;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      share.cosines[i] = angles[i / 2 * (gap / 2) + i % 2];
      share.sines[i] = angles[dsv41::kRopeDim / 2 + i / 2 * (gap / 2) + i % 2];
    }
  }
  return share;
}

// `values`: attention's output before the inverse rotation. All 32 lanes take part.
template <u32 gap>
__device__ __forceinline__ void write_output(const Args& args, const OutputShare& share,
                                             float (&values)[8], u32 token, bool wanted, u32 lane) {
  const u32 block = share.unit % kUnitBlocks;
  if (block >= kFirstRopeBlock) {
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      const float even = values[2 * j];
      const float odd = values[2 * j + 1];
      // By minus the angle: a sine that is negated early is waited for early.
      values[2 * j] = rotated_even(even, -odd, share.cosines[j], share.sines[j]);
      values[2 * j + 1] = rotated_odd(-even, odd, share.cosines[j], share.sines[j]);
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
  // The scales of four heads are a word.
  u32 codes = code << (lane / 4 % 4 * 8);
  codes |= device::from_lane_across(codes, 4);
  codes |= device::from_lane_across(codes, 8);
  if (!wanted || share.head >= kHeads) return;
  const u32 group = share.unit / kUnitBlocks;
  const u32 in_group = block * kGroupHeads + share.head % kGroupHeads;  // of the group's 128 blocks
  u8* output = args.output + token * args.output_stride_bytes +
               (group * (kUnitBlocks * kGroupHeads) + in_group) * kOutputBlock + share.first;
  *reinterpret_cast<u32*>(output) = words[0];
  *reinterpret_cast<u32*>(output + gap) = words[1];
  u32* scales = args.output_scales + token + group * args.scale_group_stride_words +
                in_group / 4 * args.scale_column_stride_words;
  if constexpr (kHeads >= 4) {
    if (lane % 16 == 0) *scales = codes;
  } else {
    if (lane % 4 == 0) device::store_1(reinterpret_cast<u8*>(scales) + in_group % 4, code);
  }
}

}  // namespace kiln::kernels::dsv41_decode
