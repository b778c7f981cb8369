// Products and sums whose roundings do not depend on what a compiler fuses: the same on both sides.
#pragma once

#include "kernel_src/shared/qualifiers.hpp"

namespace kiln::kernels {

#ifdef __CUDACC_RTC__

/// mul.rn.f32: never fused into an addition.
KILN_SHARED float multiply(float a, float b) {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}

/// fma.rn.f32: a * b + c, rounded once.
KILN_SHARED float fused_multiply_add(float a, float b, float c) {
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}

#else

/// Only as an argument of fused_multiply_add, where no compiler can fuse it.
KILN_SHARED float multiply(float a, float b) {
  return a * b;
}
KILN_SHARED float fused_multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

#endif

}  // namespace kiln::kernels
