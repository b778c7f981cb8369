// Arithmetic that C++ operators do not name. One function, one instruction.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// max.f32, all: the larger; of a NaN and a number, the number.
__device__ __forceinline__ float larger(float a, float b) {
  float maximum;
  asm("max.f32 %0, %1, %2;" : "=f"(maximum) : "f"(a), "f"(b));
  return maximum;
}

/// rcp.approx.ftz.f32, all: 1 / value, within a unit of the last place.
__device__ __forceinline__ float reciprocal(float value) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
  return inverse;
}

/// max.u16x2, sm_90+: the larger of both halves.
__device__ __forceinline__ kernels::u32 larger_u16x2(kernels::u32 a, kernels::u32 b) {
  kernels::u32 maxima;
  asm("max.u16x2 %0, %1, %2;" : "=r"(maxima) : "r"(a), "r"(b));
  return maxima;
}

/// mul.rn.bf16x2, sm_90+: both products, rounded to even; subnormal factors count.
__device__ __forceinline__ kernels::u32 multiply_bf16x2(kernels::u32 a, kernels::u32 b) {
  kernels::u32 products;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  return products;
}

/// mul.rn.f16x2, sm_53+: both products, rounded to even.
__device__ __forceinline__ kernels::u32 multiply_f16x2(kernels::u32 a, kernels::u32 b) {
  kernels::u32 products;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  return products;
}

/// lop3.b32, all: the bits of `a` where `mask` has ones, those of `b` elsewhere.
__device__ __forceinline__ kernels::u32 select_bits(kernels::u32 mask, kernels::u32 a,
                                                    kernels::u32 b) {
  kernels::u32 bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(bits) : "r"(mask), "r"(a), "r"(b));
  return bits;
}

/// and.b32, all: the bits that both have. For what the compiler would rather do twice, after each
/// of two shifts, than once before them.
__device__ __forceinline__ kernels::u32 bits_of_both(kernels::u32 a, kernels::u32 b) {
  kernels::u32 bits;
  asm("and.b32 %0, %1, %2;" : "=r"(bits) : "r"(a), "r"(b));
  return bits;
}

/// selp.b64, all: `a` or `b`, both of which are read.
__device__ __forceinline__ kernels::u64 choose(bool first, kernels::u64 a, kernels::u64 b) {
  kernels::u64 chosen;
  asm("{\n\t"
      ".reg .pred first;\n\t"
      "setp.ne.u32 first, %3, 0;\n\t"
      "selp.b64 %0, %1, %2, first;\n\t"
      "}"
      : "=l"(chosen)
      : "l"(a), "l"(b), "r"(static_cast<kernels::u32>(first)));
  return chosen;
}

/// prmt.b32, all: of the eight bytes of `a` and `b`, `a`'s first, those whose numbers are the four
/// lowest hexadecimal digits of `which`, the lowest digit's byte first.
__device__ __forceinline__ kernels::u32 pick_bytes(kernels::u32 a, kernels::u32 b,
                                                   kernels::u32 which) {
  kernels::u32 bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(which));
  return bytes;
}

/// ex2.approx.ftz.f32, all: 2^x within 2 units in the last place; 0 below 2^-126, of -infinity too.
__device__ __forceinline__ float power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace kiln::device
