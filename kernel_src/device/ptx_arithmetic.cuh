// Arithmetic that C++ operators do not name. One function, one instruction.
#pragma once

namespace kiln::device {

/// max.f32, all: the larger; of a NaN and a number, the number.
__device__ __forceinline__ float larger(float a, float b) {
  float maximum;
  asm("max.f32 %0, %1, %2;" : "=f"(maximum) : "f"(a), "f"(b));
  return maximum;
}

}  // namespace kiln::device
