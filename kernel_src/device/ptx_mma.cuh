// Products of small matrices by a warp. One function, one instruction.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// mma.sync.m16n8k16.f32.bf16.bf16.f32, sm_80+: d += A * B. With g = lane / 4 and t = lane % 4,
/// A's pairs are (row g, columns 2t and 2t + 1), (row g + 8, the same), (row g, columns 2t + 8 and
/// 2t + 9), (row g + 8, the same); B's are (rows 2t and 2t + 1, column g), (rows 2t + 8 and 2t + 9,
/// column g); d is (row g, columns 2t, 2t + 1), then row g + 8. All 32 lanes take part.
__device__ __forceinline__ void mma_bf16_16x8x16(float* d, const kernels::u32 (&a)[4],
                                                 kernels::u32 b0, kernels::u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// mma.sync.m16n8k16.f32.f16.f16.f32, sm_80+: the same with f16 factors.
__device__ __forceinline__ void mma_f16_16x8x16(float* d, const kernels::u32 (&a)[4],
                                                kernels::u32 b0, kernels::u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// ldmatrix.x4.b16, sm_75+: four matrices of 8 x 8 16-bit elements. Lane l gives the address in
/// shared memory of row l % 8 of matrix l / 8, a multiple of 16; its word of each matrix holds
/// columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4. All 32 lanes take part.
__device__ __forceinline__ void load_matrices(kernels::u32 (&words)[4], kernels::u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}

/// ldmatrix.x4.trans.b16, sm_75+: four matrices of 8 x 8 16-bit elements, transposed. Lane l gives
/// the address in shared memory of row l % 8 of matrix l / 8, a multiple of 16; its word of each
/// matrix holds rows 2 (l % 4) and 2 (l % 4) + 1 of column l / 4. All 32 lanes take part.
__device__ __forceinline__ void load_matrices_transposed(kernels::u32 (&words)[4],
                                                         kernels::u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}

}  // namespace kiln::device
