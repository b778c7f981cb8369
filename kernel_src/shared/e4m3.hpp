// E4M3 (fn): 1 sign, 4 exponent, 3 mantissa bits; bias 7, largest 448, no infinity, 0x7f is NaN.
#pragma once

#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels {

inline constexpr float kE4m3Largest = 448.0f;
inline constexpr float kE4m3Smallest = 0.001953125f;  // 2^-9, subnormal
inline constexpr u32 kE4m3Nan = 0x7fu;

/// Exact. Both NaN codes give NaN.
KILN_SHARED float float_of_e4m3(u32 code) {
  if ((code & 0x7fu) == kE4m3Nan) return float_of(0x7fffffffu);
  // Exponent and mantissa in a float's places, then the difference of the biases as a factor: a
  // subnormal code passes through a subnormal float and is right too.
  const float magnitude = float_of((code & 0x7fu) << 20) * float_of((254u - 7u) << 23);
  return float_of(bits_of(magnitude) | ((code & 0x80u) << 24));
}

/// Rounds to nearest, ties to even; saturates to +-448, infinities as well; NaN gives 0x7f, without
/// its sign. Bit for bit what cvt.rn.satfinite.e4m3x2.f32 gives.
KILN_SHARED u32 e4m3_of_float(float value) {
  const u32 magnitude = magnitude_bits(value);
  if (is_nan_magnitude(magnitude)) return kE4m3Nan;
  const u32 sign = (bits_of(value) & kSignBit) >> 24;
  if (magnitude >= bits_of(kE4m3Largest)) return sign | 0x7eu;
  // Adding 2^(e + 20) to a value of exponent e leaves steps of 2^(e - 3), E4M3's, and the adder
  // rounds to even. Below 2^-6 the steps stay those of 2^-6.
  const u32 smallest_normal = 121u << 23;
  const u32 own = magnitude & kInfinityBits;
  const u32 exponent = own > smallest_normal ? own : smallest_normal;
  const u32 shifter = exponent + (20u << 23);
  const u32 steps = bits_of(float_of(magnitude) + float_of(shifter)) - shifter;
  return sign | (steps + ((exponent - smallest_normal) >> 20));
}

}  // namespace kiln::kernels
