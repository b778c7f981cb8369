// What the scale of an NVFP4 group is rounded from.
#pragma once

#include "kernel_src/shared/rounding.hpp"

namespace kiln::kernels {

/// amax / 6 clamped to E4M3's positive range [2^-9, 448], correctly rounded. 6 is E2M1's largest
/// value. Infinity counts as large; of a NaN only this is promised: a number.
KILN_SHARED float nvfp4_scale(float amax) {
  // Clamped before the division, so that it needs no special cases: a product with the rounded
  // reciprocal and one correction give the rounded quotient of every float in this range.
  const float above = amax > 0.01171875f ? amax : 0.01171875f;
  const float numerator = above < 2688.0f ? above : 2688.0f;
  const float sixth = 1.0f / 6.0f;
  const float quotient = numerator * sixth;
  const float rest = fused_multiply_add(-6.0f, quotient, numerator);
  return fused_multiply_add(rest, sixth, quotient);
}

}  // namespace kiln::kernels
