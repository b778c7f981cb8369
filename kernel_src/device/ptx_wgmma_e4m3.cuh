// Products of E4M3 matrices by a warpgroup: see ptx_wgmma.cuh. One function, one instruction; all
// 128 threads take part, and nothing is finished before warpgroup_wait(). Sums lie in registers as
// in mma_bf16_16x8x16, 16 rows a warp, for columns 0 to 7, then 8 to 15 and so on.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// wgmma.m64n16k32.f32.e4m3.e4m3, sm_90a: d = A * B, plus what d was if `add`. Descriptors say
/// where A and B lie in shared memory, the 32 elements of the sum side by side.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x16x32(float (&d)[8], kernels::u64 a,
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7}, %8, %9, %10, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(a), "l"(b), "n"(add ? 1 : 0));
}

/// The same with A in registers: with g = lane / 4 and t = lane % 4, its words are row g and row
/// g + 8 of elements 4t to 4t + 3, then the same rows of elements 16 + 4t to 19 + 4t.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x16x32(float (&d)[8],
                                                            const kernels::u32 (&a)[4],
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7}, {%8, %9, %10, %11}, %12, %13, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add ? 1 : 0));
}

/// wgmma.m64n32k32.f32.e4m3.e4m3, sm_90a: the same with 32 columns.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x32x32(float (&d)[16], kernels::u64 a,
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, %18, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "n"(add ? 1 : 0));
}

/// The same with 32 columns.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x32x32(float (&d)[16],
                                                            const kernels::u32 (&a)[4],
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, %21, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add ? 1 : 0));
}

/// wgmma.m64n48k32.f32.e4m3.e4m3, sm_90a: the same with 48 columns.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x48x32(float (&d)[24], kernels::u64 a,
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n48k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
      "%24, %25, %26, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
      : "l"(a), "l"(b), "n"(add ? 1 : 0));
}

/// The same with 48 columns.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x48x32(float (&d)[24],
                                                            const kernels::u32 (&a)[4],
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n48k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
      "{%24, %25, %26, %27}, %28, %29, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add ? 1 : 0));
}

/// wgmma.m64n64k32.f32.e4m3.e4m3, sm_90a: the same with 64 columns.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x64x32(float (&d)[32], kernels::u64 a,
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, %34, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "n"(add ? 1 : 0));
}

/// The same with 64 columns.
template <bool add>
__device__ __forceinline__ void warpgroup_mma_e4m3_64x64x32(float (&d)[32],
                                                            const kernels::u32 (&a)[4],
                                                            kernels::u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, %37, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add ? 1 : 0));
}

}  // namespace kiln::device
