// Conversions between number formats. One function, one instruction.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// cvt.rn.satfinite.e4m3x2.f32, sm_89+: both to E4M3, ties to even, saturated to +-448, NaN to
/// 0x7f; `low` in the lower byte.
__device__ __forceinline__ kernels::u32 e4m3x2_of_floats(float low, float high) {
  kernels::u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

/// cvt.rn.bf16x2.f32, sm_80+: both to bf16, ties to even; `low` in the lower half.
__device__ __forceinline__ kernels::u32 bf16x2_of_floats(float low, float high) {
  kernels::u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace kiln::device
