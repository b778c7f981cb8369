// Products of E4M3 matrices by mma.sync on 16-bit factors, which hold E4M3 exactly, for every
// architecture: see e4m3_products.cuh. Each warp works by itself on its 16 of 64 rows.
#pragma once

#include "kernel_src/device/e4m3_products.cuh"
#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_shared.cuh"

namespace kiln::device {

struct E4m3Mma {
  /// Whether products go on by themselves between go() and wait().
  static constexpr bool kGoesOn = false;
  static __device__ __forceinline__ kernels::u32 place(kernels::u32 address) { return address; }
  static __device__ __forceinline__ kernels::u32 after(kernels::u32 place, kernels::u32 bytes) {
    return place + bytes;
  }
  static __device__ __forceinline__ void publish() {}
  static __device__ __forceinline__ void begin() {}
  static __device__ __forceinline__ void go() {}
  template <int unfinished = 0, kernels::u32 count>
  static __device__ __forceinline__ void wait(float (&)[count]) {}

  /// As E4m3Wgmma's.
  template <kernels::u32 columns, bool add>
  static __device__ __forceinline__ void rows_of_128(float (&sums)[columns / 2], kernels::u32 rows,
                                                     kernels::u32 by, kernels::u32 step) {
    multiply_rows<columns, add, 128>(sums, rows, by, step);
  }
  template <kernels::u32 columns, bool add>
  static __device__ __forceinline__ void rows_of_64(float (&sums)[columns / 2], kernels::u32 rows,
                                                    kernels::u32 by, kernels::u32 step) {
    multiply_rows<columns, add, 64>(sums, rows, by, step);
  }
  template <kernels::u32 columns, bool add>
  static __device__ __forceinline__ void columns_of_32(float (&sums)[columns / 2],
                                                       const kernels::u32 (&factor)[4],
                                                       kernels::u32 by, kernels::u32 step) {
    if constexpr (!add) clear(sums);
    multiply_piece<columns, 128>(sums, factor[0], factor[1], by, step * 2);
    multiply_piece<columns, 128>(sums, factor[2], factor[3], by, step * 2 + 1);
  }
  /// The same, added, with all elements times `scale`, two equal f16 whose products are exact.
  template <kernels::u32 columns>
  static __device__ __forceinline__ void columns_of_32_scaled(float (&sums)[columns / 2],
                                                              const kernels::u32 (&factor)[4],
                                                              kernels::u32 by, kernels::u32 step,
                                                              kernels::u32 scale) {
    multiply_piece<columns, 128>(sums, factor[0], factor[1], by, step * 2, scale);
    multiply_piece<columns, 128>(sums, factor[2], factor[3], by, step * 2 + 1, scale);
  }

 private:
  static constexpr kernels::u32 kOnes = 0x3c003c00;

  template <kernels::u32 count>
  static __device__ __forceinline__ void clear(float (&sums)[count]) {
#pragma unroll
    for (kernels::u32 i = 0; i < count; ++i) sums[i] = 0;
  }
  template <kernels::u32 row_bytes>
  static __device__ __forceinline__ kernels::u32 in_matrix(kernels::u32 row, kernels::u32 piece) {
    const kernels::u32 groups = row / 8 * (8 * row_bytes);
    return groups + (row_bytes == 128 ? in_rows_of_128(row, piece) : in_rows_of_64(row, piece));
  }
  template <kernels::u32 columns, bool add, kernels::u32 row_bytes>
  static __device__ __forceinline__ void multiply_rows(float (&sums)[columns / 2],
                                                       kernels::u32 rows, kernels::u32 by,
                                                       kernels::u32 step) {
    if constexpr (!add) clear(sums);
    const kernels::u32 lane = threadIdx.x % 32;
    const kernels::u32 row = threadIdx.x / 32 % 4 * 16 + lane % 16;
    kernels::u32 words[4];  // rows 0 to 7 and 8 to 15 of a piece, then of the next
    load_matrices(words, rows + in_matrix<row_bytes>(row, step * 2 + lane / 16));
    multiply_piece<columns, row_bytes>(sums, words[0], words[1], by, step * 2);
    multiply_piece<columns, row_bytes>(sums, words[2], words[3], by, step * 2 + 1);
  }
  // 16 elements of the sum: a lane has four of rows g and g + 8. The instruction takes the first
  // two of all lanes before the others; both factors are in that order.
  template <kernels::u32 columns, kernels::u32 row_bytes>
  static __device__ __forceinline__ void multiply_piece(float (&sums)[columns / 2],
                                                        kernels::u32 low_row, kernels::u32 high_row,
                                                        kernels::u32 by, kernels::u32 piece,
                                                        kernels::u32 scale = kOnes) {
    kernels::u32 a[4] = {f16x2_of_e4m3x2(low_row), f16x2_of_e4m3x2(high_row),
                         f16x2_of_e4m3x2(low_row >> 16), f16x2_of_e4m3x2(high_row >> 16)};
    if (scale != kOnes)
#pragma unroll
      for (kernels::u32& pair : a) pair = multiply_f16x2(pair, scale);
    const kernels::u32 lane = threadIdx.x % 32;
#pragma unroll
    for (kernels::u32 group = 0; group < columns / 8; ++group) {
      const kernels::u32 word =
          load_shared_4(by + in_matrix<row_bytes>(group * 8 + lane / 4, piece) + lane % 4 * 4);
      mma_f16_16x8x16(sums + group * 4, a, f16x2_of_e4m3x2(word), f16x2_of_e4m3x2(word >> 16));
    }
  }
};

}  // namespace kiln::device
