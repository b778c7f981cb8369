// Shared memory by its own addresses. One function, one instruction; the address is a multiple of
// the size.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// ld.shared.b32, all: 4 bytes.
__device__ __forceinline__ kernels::u32 load_shared_4(kernels::u32 from) {
  kernels::u32 word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

/// ld.shared.v2.b32, all: 8 bytes.
__device__ __forceinline__ void load_shared_8(kernels::u32 from, kernels::u32& a, kernels::u32& b) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");
}

/// st.shared.b32, all: 4 bytes.
__device__ __forceinline__ void store_shared_4(kernels::u32 to, kernels::u32 word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

/// st.shared.b16, all: 2 bytes, the word's low ones.
__device__ __forceinline__ void store_shared_2(kernels::u32 to, kernels::u32 word) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(static_cast<kernels::u16>(word))
               : "memory");
}

/// st.shared.v4.b32, all: 16 bytes.
__device__ __forceinline__ void store_shared_16(kernels::u32 to, kernels::u32 a, kernels::u32 b,
                                                kernels::u32 c, kernels::u32 d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// red.shared.max.s32, all: keeps the larger of the integer there and `word`.
__device__ __forceinline__ void keep_larger(kernels::u32 at, int word) {
  asm volatile("red.shared.max.s32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
}

}  // namespace kiln::device
