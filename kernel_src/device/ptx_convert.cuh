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

/// cvt.rn.f16x2.f32, all: both to f16, ties to even; `low` in the lower half.
__device__ __forceinline__ kernels::u32 f16x2_of_floats(float low, float high) {
  kernels::u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// cvt.rn.f16x2.e4m3x2, sm_89+: both, exactly; the lower byte in the lower half.
__device__ __forceinline__ kernels::u32 f16x2_of_e4m3x2(kernels::u32 pair) {
  kernels::u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<kernels::u16>(pair)));
  return halves;
}

/// cvt.f32.f16, all: the lower half, exactly.
__device__ __forceinline__ float float_of_f16(kernels::u32 half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<kernels::u16>(half)));
  return value;
}

}  // namespace kiln::device
