// bfloat16 as raw 16-bit integers: the upper half of a float.
#pragma once

#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels {

/// Exact.
KILN_SHARED float float_of_bf16(u16 bits) {
  return float_of(static_cast<u32>(bits) << 16);
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
