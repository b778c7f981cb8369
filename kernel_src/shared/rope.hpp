// Rotary embedding of one pair, in fp32: two roundings for each result.
#pragma once

#include "kernel_src/shared/rounding.hpp"

namespace kiln::kernels {

/// even * cosine - odd * sine.
KILN_SHARED float rotated_even(float even, float odd, float cosine, float sine) {
  return fused_multiply_add(even, cosine, -multiply(odd, sine));
}

/// odd * cosine + even * sine.
KILN_SHARED float rotated_odd(float even, float odd, float cosine, float sine) {
  return fused_multiply_add(odd, cosine, multiply(even, sine));
}

}  // namespace kiln::kernels
