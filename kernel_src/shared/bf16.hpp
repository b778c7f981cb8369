// bfloat16 as raw 16-bit integers: the upper half of a float.
#pragma once

#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels {

/// Exact.
KILN_SHARED float float_of_bf16(u16 bits) {
  return float_of(static_cast<u32>(bits) << 16);
}

/// Rounds to nearest, ties to even; what is too large becomes infinity; NaN gives 0x7fff, without
/// its sign. Bit for bit what cvt.rn.bf16.f32 gives.
KILN_SHARED u16 bf16_of_float(float value) {
  const u32 bits = bits_of(value);
  if (is_nan_magnitude(magnitude_bits(value))) return 0x7fffu;
  return static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// The element at the lower address of a pair, exactly.
KILN_SHARED float low_of_bf16x2(u32 pair) {
  return float_of(pair << 16);
}
/// The element at the higher address of a pair, exactly.
KILN_SHARED float high_of_bf16x2(u32 pair) {
  return float_of(pair & 0xffff0000u);
}

}  // namespace kiln::kernels
