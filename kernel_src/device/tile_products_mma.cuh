// Products with a tile by mma.sync, for every architecture from sm_90: see tile_products.cuh. Warps
// work alone; the sums lie as those of the wgmma back-end.
#pragma once

#include "kernel_src/device/ptx_mma.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/device/tile_products.cuh"

namespace kiln::device {

struct MmaProducts {
  /// The warp's number in its block.
  static __device__ __forceinline__ kernels::u32 warp() { return threadIdx.x / 32; }
  static __device__ __forceinline__ kernels::u32 place(kernels::u32 address) { return address; }
  static __device__ __forceinline__ kernels::u32 after(kernels::u32 place, kernels::u32 bytes) {
    return place + bytes;
  }
  static __device__ __forceinline__ void publish() {}
  /// The lane's number for what comes after loads that need all registers: nothing that is worked
  /// out from it takes one before.
  static __device__ __forceinline__ kernels::u32 lane_after_loads(kernels::u32) {
    return lane_anew();
  }
  template <class... Sums>
  static __device__ __forceinline__ void begin(Sums&...) {}
  static __device__ __forceinline__ void let_run() {}
  template <int running, class... Sums>
  static __device__ __forceinline__ void end_all_but(Sums&...) {}
  template <class... Sums>
  static __device__ __forceinline__ void end(Sums&...) {}

  template <kernels::u32 columns, kernels::u32 all = columns>
  static __device__ __forceinline__ void add_rows(float (&sums)[columns / 2], kernels::u32 rows,
                                                  kernels::u32 first_piece, kernels::u32 at) {
    const kernels::u32 lane = threadIdx.x % 32;
    const kernels::u32 warp_rows = rows + threadIdx.x / 32 % 4 * 2048;
    // Matrices: rows 0 to 7, rows 8 to 15, then the same of the next piece.
    kernels::u32 a[4];
    load_matrices(
        a, warp_rows + lane / 8 % 2 * 1024 + in_eight_rows(lane % 8, first_piece + lane / 16));
    multiply<columns, all>(sums, a, at);
  }

  template <kernels::u32 columns>
  static __device__ __forceinline__ void add_transposed(float (&sums)[columns / 2],
                                                        kernels::u32 rows, kernels::u32 at,
                                                        kernels::u32 first_piece) {
    const kernels::u32 lane = threadIdx.x % 32;
    // Of 64 elements this warp has two pieces. Matrices: the first piece of rows 0 to 7, the
    // second, then the same of rows 8 to 15.
    const kernels::u32 from =
        rows + lane / 16 * 1024 + in_eight_rows(lane % 8, threadIdx.x / 32 % 4 * 2 + lane / 8 % 2);
    kernels::u32 a[4];
    load_matrices_transposed(a, from);
    multiply_by_rows<columns>(sums, a, at, first_piece);
  }

  static __device__ __forceinline__ void add_rows_by_rows(float (&sums)[32], kernels::u32 rows,
                                                          kernels::u32 columns,
                                                          kernels::u32 first_piece) {
    const kernels::u32 lane = threadIdx.x % 32;
    // Matrices: rows 0 to 7, rows 8 to 15, then the same of the next piece.
    kernels::u32 a[4];
    load_matrices(a, rows + threadIdx.x / 32 % 4 * 2048 + lane / 8 % 2 * 1024 +
                         in_eight_rows(lane % 8, first_piece + lane / 16));
    multiply_by_rows<64>(sums, a, columns, first_piece);
  }

  static __device__ __forceinline__ void add_weighted_rows(float (&sums)[64],
                                                           const kernels::u32 (&weights)[4],
                                                           kernels::u32 rows,
                                                           kernels::u32 to_next) {
    const kernels::u32 lane = threadIdx.x % 32;
#pragma unroll
    for (kernels::u32 n = 0; n < 16; n += 2) {
      // Matrices: rows 0 to 7, rows 8 to 15, then the same of the next piece.
      kernels::u32 b[4];
      load_matrices_transposed(b, rows + n / 8 * to_next + lane / 8 % 2 * 1024 +
                                      in_eight_rows(lane % 8, n % 8 + lane / 16));
      mma_bf16_16x8x16(sums + 4 * n, weights, b[0], b[1]);
      mma_bf16_16x8x16(sums + 4 * n + 4, weights, b[2], b[3]);
    }
  }

 private:
  template <kernels::u32 columns>
  static __device__ __forceinline__ void multiply_by_rows(float (&sums)[columns / 2],
                                                          const kernels::u32 (&a)[4],
                                                          kernels::u32 rows,
                                                          kernels::u32 first_piece) {
    const kernels::u32 lane = threadIdx.x % 32;
    // Matrices: eight columns, the same of the next piece, then eight columns more.
    const kernels::u32 from =
        rows + lane / 16 * 1024 + in_eight_rows(lane % 8, first_piece + lane / 8 % 2);
#pragma unroll
    for (kernels::u32 n = 0; n < columns / 8; n += 2) {
      kernels::u32 b[4];
      load_matrices(b, from + n * 1024);
      mma_bf16_16x8x16(sums + 4 * n, a, b[0], b[1]);
      mma_bf16_16x8x16(sums + 4 * n + 4, a, b[2], b[3]);
    }
  }

  template <kernels::u32 columns, kernels::u32 all>
  static __device__ __forceinline__ void multiply(float (&sums)[columns / 2],
                                                  const kernels::u32 (&a)[4], kernels::u32 at) {
    const kernels::u32 lane = threadIdx.x % 32;
    // Matrices: elements 0 to 7 and 8 to 15 of one 8 columns, then those of the next.
    const kernels::u32 from = at + (lane / 8 % 2 * (all / 8) + lane / 16) * 128 + lane % 8 * 16;
#pragma unroll
    for (kernels::u32 n = 0; n < columns / 8; n += 2) {
      kernels::u32 b[4];
      load_matrices(b, from + n * 128);
      mma_bf16_16x8x16(sums + 4 * n, a, b[0], b[1]);
      mma_bf16_16x8x16(sums + 4 * n + 4, a, b[2], b[3]);
    }
  }
};

}  // namespace kiln::device
