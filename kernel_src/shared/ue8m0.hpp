// UE8M0: a power of two as its exponent + 127; 255 is NaN.
#pragma once

#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels {

/// The smallest amax that a scale is made of; a group of zeros gets the scale of this.
inline constexpr float kUe8m0AmaxFloor = 1e-4f;

/// The code of the smallest power of two p with amax <= 448 * p, 448 being E4M3's largest value:
/// ceil(log2(amax / 448)) + 127, exactly. 448 is 1.75 * 2^8, so the mantissa decides about one
/// step. Requires a normal amax or infinity (whose code is that of the largest floats, 247).
KILN_SHARED u32 ue8m0_for_e4m3(float amax) {
  const u32 bits = bits_of(amax);
  return (bits >> 23) - 8u + ((bits & 0x007fffffu) > 0x00600000u ? 1u : 0u);
}

/// 2^(127 - code), what values are multiplied with before they are rounded. Requires code <= 253.
KILN_SHARED float ue8m0_reciprocal(u32 code) {
  return float_of((254u - code) << 23);
}

/// 2^(code - 127). Code 0 is 2^-127, a subnormal float; 255 is NaN.
KILN_SHARED float float_of_ue8m0(u32 code) {
  if (code == 0u) return float_of(0x00400000u);
  if (code == 255u) return float_of(0x7fffffffu);
  return float_of(code << 23);
}

}  // namespace kiln::kernels
