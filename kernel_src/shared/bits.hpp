// A float as its bits and back.
#pragma once

#include "kernel_src/shared/qualifiers.hpp"
#include "kernel_src/shared/types.hpp"

namespace kiln::kernels {

inline constexpr u32 kSignBit = 0x80000000u;
inline constexpr u32 kInfinityBits = 0x7f800000u;

KILN_SHARED u32 bits_of(float value) {
  return __builtin_bit_cast(u32, value);
}
KILN_SHARED float float_of(u32 bits) {
  return __builtin_bit_cast(float, bits);
}

/// The bits of |value|. As integers they order as the magnitudes do, with NaN above everything.
KILN_SHARED u32 magnitude_bits(float value) {
  return bits_of(value) & ~kSignBit;
}

/// True for the magnitude bits of a NaN.
KILN_SHARED bool is_nan_magnitude(u32 magnitude) {
  return magnitude > kInfinityBits;
}

}  // namespace kiln::kernels
