// What a record holds as bf16, in registers.
#pragma once

#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/dsv41_decode/common.cuh"
#include "kernel_src/shared/bits.hpp"
#include "kernel_src/shared/e4m3.hpp"

namespace kiln::kernels::dsv41_decode {

// Which 16 bytes of 256 a lane brings where a warp brings two records at a time, the lanes with
// number & 4 the second one.
__device__ __forceinline__ u32 slice_of_lane(u32 lane) {
  return lane / 8 * 4 + lane % 4;
}

// Two E4M3 codes as bf16, without their factor: sign, exponent and mantissa moved to their places,
// which are off by 2^120. `first`: of bytes 0 and 2 of the word, otherwise of bytes 1 and 3.
template <bool first>
__device__ __forceinline__ u32 bf16x2_of_e4m3(u32 word, u32 signs) {
  return device::select_bits(0x07f007f0u, first ? word << 4 : word >> 4,
                             first ? signs << 8 : signs);
}

// E2M1 codes `i` of the word's lower and of its upper half likewise, off by 2^126.
template <u32 i>
__device__ __forceinline__ u32 bf16x2_of_e2m1(u32 word) {
  const u32 magnitudes = i < 2 ? word << (6 - 4 * i) : word >> (4 * i - 6);
  return (magnitudes & 0x01c001c0u) | (word << (12 - 4 * i) & 0x80008000u);
}

// The factor that makes such bits what they stand for, shifted, in both halves. A UE8M0 code from
// 167 on, for which there is none, becomes NaN.
template <Record record>
__device__ __forceinline__ u32 factor_of_scale(u32 code) {
  u32 factor;
  if constexpr (record == Record::fp8) {
    factor = code <= 134 + kShift ? (code + (120 - kShift)) << 7 : 0x7fc0u;
  } else {
    factor = bits_of(float_of_e4m3(code) * float_of((127 + 126 - kShift) << 23)) >> 16;
  }
  return factor * 0x10001u;
}

// Eight elements of a record as bf16, in the order that costs least: 0, 2, 1, 3, 4, 6, 5, 7.
// `signs_once`: an instruction less for four elements, and a register more for a while.
template <bool signs_once = false>
__device__ __forceinline__ Words4 eight_of_e4m3(u32 word_0, u32 word_1, u32 factor) {
  const u32 words[2] = {word_0, word_1};
  u32 pairs[4];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const u32 signs =
        signs_once ? device::bits_of_both(words[i], 0x80808080u) : words[i] & 0x80808080u;
    pairs[2 * i] = device::multiply_bf16x2(bf16x2_of_e4m3<true>(words[i], signs), factor);
    pairs[2 * i + 1] = device::multiply_bf16x2(bf16x2_of_e4m3<false>(words[i], signs), factor);
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Likewise, and the order is 0, 4, 1, 5, 2, 6, 3, 7.
__device__ __forceinline__ Words4 eight_of_e2m1(u32 word, u32 factor) {
  return {device::multiply_bf16x2(bf16x2_of_e2m1<0>(word), factor),
          device::multiply_bf16x2(bf16x2_of_e2m1<1>(word), factor),
          device::multiply_bf16x2(bf16x2_of_e2m1<2>(word), factor),
          device::multiply_bf16x2(bf16x2_of_e2m1<3>(word), factor)};
}

}  // namespace kiln::kernels::dsv41_decode
