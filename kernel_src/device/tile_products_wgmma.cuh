// Products with a tile by wgmma, for sm_90a: see tile_products.cuh. A warpgroup works together;
// each of its warps gets 16 of 64 rows.
#pragma once

#include "kernel_src/device/ptx_proxy.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/device/ptx_wgmma.cuh"
#include "kernel_src/device/tile_products.cuh"

namespace kiln::device {

struct WgmmaProducts {
  /// The warp's number in its block, the same for all lanes as far as the compiler knows.
  static __device__ __forceinline__ kernels::u32 warp() {
    return from_first_lane(threadIdx.x / 32);
  }
  /// Where something lies, as the products want it: an address, and what comes some bytes after it.
  /// An instruction takes it from registers that a warp's lanes share. Made of what the compiler
  /// knows to be the same for all lanes it costs one instruction, else six that wait for each
  /// other.
  static __device__ __forceinline__ kernels::u32 place(kernels::u32 address) {
    return address >> 4 & 0x3fffu;  // above it is the block's number in its cluster
  }
  static __device__ __forceinline__ kernels::u32 after(kernels::u32 place, kernels::u32 bytes) {
    return place + bytes / 16;
  }
  /// After writing a tile or columns, before the barrier that the readers wait for.
  static __device__ __forceinline__ void publish() { fence_async_shared(); }
  /// See MmaProducts: here there are enough, and it would cost 0.1 us.
  static __device__ __forceinline__ kernels::u32 lane_after_loads(kernels::u32 lane) {
    return lane;
  }
  /// Before the first product, with all sums and weights in registers, each set by then.
  template <class... Registers>
  static __device__ __forceinline__ void begin(Registers&... registers) {
    (hold(registers), ...);
    warpgroup_fence();
  }
  /// The products since the last time are a group, which runs on by itself.
  static __device__ __forceinline__ void let_run() { warpgroup_commit(); }
  /// After it the sums of all groups but the last `running` can be read.
  template <int running, class... Registers>
  static __device__ __forceinline__ void end_all_but(Registers&... sums) {
    warpgroup_wait<running>();
    (hold(sums), ...);
  }
  /// After it all sums can be read.
  template <class... Registers>
  static __device__ __forceinline__ void end(Registers&... sums) {
    let_run();
    end_all_but<0>(sums...);
  }

  /// sums += 64 rows times `columns` of the `all` that lie together, a step of 16 elements of each
  /// row; the rows start at the place `rows`, and the step's elements are its pieces `first_piece`
  /// and the next.
  template <kernels::u32 columns, kernels::u32 all = columns>
  static __device__ __forceinline__ void add_rows(float (&sums)[columns / 2], kernels::u32 rows,
                                                  kernels::u32 first_piece, kernels::u32 at) {
    multiply<columns, false>(sums, descriptor(after(rows, first_piece * 16), 1, 64, kSwizzled),
                             columns_at<all>(at));
  }

  /// The same with the tile's columns for rows: 64 elements of 16 rows, which start at `rows`. The
  /// columns are rows of another tile, which starts at the place `at`: two pieces of them.
  template <kernels::u32 columns>
  static __device__ __forceinline__ void add_transposed(float (&sums)[columns / 2],
                                                        kernels::u32 rows, kernels::u32 at,
                                                        kernels::u32 first_piece) {
    multiply<columns, true>(sums, descriptor(rows, 1, 64, kSwizzled),
                            descriptor(after(at, first_piece * 16), 1, 64, kSwizzled));
  }

  /// sums += 64 rows of one tile times 64 rows of another, a step of 16 elements of each: pieces
  /// `first_piece` and the next. These take addresses.
  static __device__ __forceinline__ void add_rows_by_rows(float (&sums)[32], kernels::u32 rows,
                                                          kernels::u32 columns,
                                                          kernels::u32 first_piece) {
    warpgroup_mma_64x64x16<false>(sums,
                                  descriptor(place(rows + first_piece * 16), 1, 64, kSwizzled),
                                  descriptor(place(columns + first_piece * 16), 1, 64, kSwizzled));
  }

  /// sums += weights, 64 rows of 16, times 16 rows of a tile: 64 elements of each, which start at
  /// `rows`, and as many that start `to_next` further on.
  static __device__ __forceinline__ void add_weighted_rows(float (&sums)[64],
                                                           const kernels::u32 (&weights)[4],
                                                           kernels::u32 rows,
                                                           kernels::u32 to_next) {
    warpgroup_mma_64x128x16(sums, weights, descriptor(place(rows), to_next >> 4, 64, kSwizzled));
  }

 private:
  // Keeps the compiler from setting sums only after the fence, or reading them before the wait.
  template <kernels::u32 count>
  static __device__ __forceinline__ void hold(float (&sums)[count]) {
#pragma unroll
    for (kernels::u32 i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
  }
  template <kernels::u32 steps>
  static __device__ __forceinline__ void hold(kernels::u32 (&weights)[steps][4]) {
#pragma unroll
    for (kernels::u32 i = 0; i < steps * 4; ++i)
      asm volatile("" : "+r"(weights[i / 4][i % 4])::"memory");
  }

  static constexpr kernels::u32 kSwizzled = 1u << 30;  // 128 bytes

  // Where an operand lies: distances in units of 16 bytes, between matrices along the sum and
  // between groups of eight.
  static __device__ __forceinline__ kernels::u64 descriptor(kernels::u32 place,
                                                            kernels::u32 along_sum,
                                                            kernels::u32 between_groups,
                                                            kernels::u32 kind) {
    return static_cast<kernels::u64>(between_groups | kind) << 32 | (place + (along_sum << 16));
  }
  template <kernels::u32 columns>
  static __device__ __forceinline__ kernels::u64 columns_at(kernels::u32 place) {
    return descriptor(place, columns, 8, 0);
  }
  template <kernels::u32 columns, bool transposed>
  static __device__ __forceinline__ void multiply(float (&sums)[columns / 2], kernels::u64 a,
                                                  kernels::u64 b) {
    if constexpr (columns == 16) {
      warpgroup_mma_64x16x16<transposed>(sums, a, b);
    } else if constexpr (columns == 32) {
      warpgroup_mma_64x32x16<transposed>(sums, a, b);
    } else {
      static_assert(columns == 64, "16, 32 or 64 columns");
      warpgroup_mma_64x64x16<transposed>(sums, a, b);
    }
  }
};

}  // namespace kiln::device
