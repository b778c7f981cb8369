// Global memory in wide pieces. One function, one instruction; the address is a multiple of the
// size. The clobber keeps accesses behind a grid-dependency wait.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

using kernels::u32;
using kernels::u8;

struct alignas(16) Words4 {
  u32 x, y, z, w;
};

/// ld.global.v4.b32, all: 16 bytes.
__device__ __forceinline__ Words4 load_16(const void* from) {
  Words4 words;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}

/// ld.global.v4.b32 under a predicate, all: 16 bytes, or zeros without a look at the address.
/// Unlike a load in a branch it does not keep the next one waiting.
__device__ __forceinline__ Words4 load_16_if(bool there, const void* from) {
  Words4 words = {0, 0, 0, 0};
  asm volatile(
      "{\n\t"
      ".reg .pred there;\n\t"
      "setp.ne.u32 there, %5, 0;\n\t"
      "@there ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n\t"
      "}"
      : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w)
      : "l"(from), "r"(static_cast<u32>(there))
      : "memory");
  return words;
}

/// ld.global.L1::no_allocate.v4.b32, sm_70+: 16 bytes that nobody reads again.
__device__ __forceinline__ Words4 load_16_once(const void* from) {
  Words4 words;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}

/// ld.global.b32, all: 4 bytes.
__device__ __forceinline__ u32 load_4(const void* from) {
  u32 word;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

/// ld.global.u16, all: 2 bytes.
__device__ __forceinline__ u32 load_2(const void* from) {
  unsigned short word;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(word) : "l"(from) : "memory");
  return word;
}

/// ld.global.u8, all: a byte.
__device__ __forceinline__ u32 load_1(const void* from) {
  u32 byte;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(byte) : "l"(from) : "memory");
  return byte;
}

/// st.global.v4.b32, all: 16 bytes.
__device__ __forceinline__ void store_16(void* to, const Words4& words) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

/// st.global.b8, all: the lowest byte.
__device__ __forceinline__ void store_1(void* to, u32 byte) {
  asm volatile("st.global.b8 [%0], %1;" ::"l"(to), "r"(byte) : "memory");
}

}  // namespace kiln::device
