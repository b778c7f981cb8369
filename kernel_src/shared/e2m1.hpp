// E2M1: 1 sign, 2 exponent, 1 mantissa bit; 0, 0.5, 1, 1.5, 2, 3, 4, 6; no infinity, no NaN.
#pragma once

#include "kernel_src/shared/bits.hpp"
#include "kernel_src/shared/rounding.hpp"

namespace kiln::kernels {

/// Eight codes of the value that cvt.rn.satfinite.e2m1x2.f32 gives for NaN, the largest.
inline constexpr u32 kE2m1NanWord = 0x77777777u;

/// Exact. Codes 8 to 15 are the negative ones; 8 is -0.
KILN_SHARED float float_of_e2m1(u32 code) {
  const u32 magnitude = code & 7u;
  const float value = magnitude < 2u ? 0.5f * static_cast<float>(magnitude)
                                     : float_of((126u << 23) + (magnitude << 22));
  return float_of(bits_of(value) | ((code & 8u) << 28));
}

/// value / scale rounded to nearest, ties to even code, saturated to +-6, infinities as well; -0
/// and what rounds to it keep the sign. Of a NaN only this is promised: a code below 16. Requires
/// an E4M3 value of at least 2^-9 as `scale`, and 1 / scale rounded as `reciprocal`.
KILN_SHARED u32 e2m1_of_quotient(float value, float scale, float reciprocal) {
  const float magnitude = float_of(magnitude_bits(value));
  // One correction makes the quotient a correctly rounded one (Markstein), and that lies on a tie
  // only where the exact one does: ties times a scale are floats, and the next float is further
  // away than the rounding reaches.
  const float guess = magnitude * reciprocal;
  const float rest = fused_multiply_add(-guess, scale, magnitude);
  const float quotient = fused_multiply_add(rest, reciprocal, guess);
  const float small = quotient < 6.0f ? quotient : 6.0f;  // infinity has become NaN: 6 too
  // Adding 2^(e + 22) to a value of exponent e leaves steps of 2^(e - 1), E2M1's, and the adder
  // rounds to even. Below 1 the steps stay those of 1.
  const u32 one = 127u << 23;
  const u32 own = bits_of(small) & kInfinityBits;
  const u32 exponent = own > one ? own : one;
  const u32 shifter = exponent + (22u << 23);
  const u32 steps = bits_of(small + float_of(shifter)) - shifter;
  return (steps + ((exponent - one) >> 22)) | ((bits_of(value) & kSignBit) >> 28);
}

}  // namespace kiln::kernels
