// Products of E4M3 matrices by wgmma, for sm_90a: see e4m3_products.cuh. A warpgroup works
// together; each of its warps gets 16 of 64 rows. The matrix units keep some 14 bits of a sum: what
// runs over many products is added up by the caller.
#pragma once

#include "kernel_src/device/e4m3_products.cuh"
#include "kernel_src/device/ptx_proxy.cuh"
#include "kernel_src/device/ptx_wgmma.cuh"
#include "kernel_src/device/ptx_wgmma_e4m3.cuh"

namespace kiln::device {

struct E4m3Wgmma {
  /// Whether products go on by themselves between go() and wait().
  static constexpr bool kGoesOn = true;
  /// Where a matrix lies, as the products want it: an address, and what comes some bytes after it.
  /// An instruction wants so little beside it that the units do not wait for it.
  static __device__ __forceinline__ kernels::u32 place(kernels::u32 address) {
    return address >> 4 | 1u << 16;
  }
  static __device__ __forceinline__ kernels::u32 after(kernels::u32 place, kernels::u32 bytes) {
    return place + bytes / 16;
  }
  /// After writing a factor to shared memory, before the barrier that its readers wait for.
  static __device__ __forceinline__ void publish() { fence_async_shared(); }
  /// Before the first product.
  static __device__ __forceinline__ void begin() { warpgroup_fence(); }
  /// After the last one of a sum: they go on by themselves.
  static __device__ __forceinline__ void go() { warpgroup_commit(); }
  /// The sums can be read that came before the last `unfinished` ones.
  template <int unfinished = 0, kernels::u32 count>
  static __device__ __forceinline__ void wait(float (&sums)[count]) {
    warpgroup_wait<unfinished>();
#pragma unroll
    for (kernels::u32 i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
  }

  /// sums = (plus what they were, if `add`) 64 rows times `columns` rows, 32 bytes of each: from
  /// `step` * 32 on in rows of 128 bytes that start at the places `rows` and `by`.
  template <kernels::u32 columns, bool add>
  static __device__ __forceinline__ void rows_of_128(float (&sums)[columns / 2], kernels::u32 rows,
                                                     kernels::u32 by, kernels::u32 step) {
    multiply<columns, add>(sums, descriptor(after(rows, step * 32), 64, 1),
                           descriptor(after(by, step * 32), 64, 1));
  }
  /// The same with rows of 64 bytes.
  template <kernels::u32 columns, bool add>
  static __device__ __forceinline__ void rows_of_64(float (&sums)[columns / 2], kernels::u32 rows,
                                                    kernels::u32 by, kernels::u32 step) {
    multiply<columns, add>(sums, descriptor(after(rows, step * 32), 32, 2),
                           descriptor(after(by, step * 32), 32, 2));
  }
  /// The same with a factor of load_columns().
  template <kernels::u32 columns, bool add>
  static __device__ __forceinline__ void columns_of_32(float (&sums)[columns / 2],
                                                       const kernels::u32 (&factor)[4],
                                                       kernels::u32 by, kernels::u32 step) {
    multiply<columns, add>(sums, factor, descriptor(after(by, step * 32), 64, 1));
  }

 private:
  // Where an operand lies: the distance between groups of eight rows in units of 16 bytes; swizzle
  // 1 is of 128 bytes, 2 of 64.
  static __device__ __forceinline__ kernels::u64 descriptor(kernels::u32 place,
                                                            kernels::u32 between_groups,
                                                            kernels::u32 swizzle) {
    return static_cast<kernels::u64>(between_groups | swizzle << 30) << 32 | place;
  }
  template <kernels::u32 columns, bool add, class A>
  static __device__ __forceinline__ void multiply(float (&sums)[columns / 2], const A& a,
                                                  kernels::u64 b) {
    if constexpr (columns == 16) {
      warpgroup_mma_e4m3_64x16x32<add>(sums, a, b);
    } else if constexpr (columns == 32) {
      warpgroup_mma_e4m3_64x32x32<add>(sums, a, b);
    } else if constexpr (columns == 48) {
      warpgroup_mma_e4m3_64x48x32<add>(sums, a, b);
    } else {
      static_assert(columns == 64, "16, 32, 48 or 64 columns");
      warpgroup_mma_e4m3_64x64x32<add>(sums, a, b);
    }
  }
};

}  // namespace kiln::device
