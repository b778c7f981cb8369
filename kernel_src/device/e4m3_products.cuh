// Products of E4M3 matrices in shared memory: what both back-ends agree on.
//
// Matrices have rows of bytes, 128 of a row together; eight rows are 1024 bytes, aligned to as
// many, in which 16-byte pieces change places: piece p of row r is at place p ^ (r % 8). Rows of
// only 64 bytes lie eight to 512 bytes, piece p of row r at place p ^ (r / 2 % 4). So do tensor
// maps with these swizzles. A sum's elements lie along the rows of both factors.
//
// Factors whose sum runs over their rows come in registers, as "columns": what
// load_columns() takes from 32 rows. Of each 16 of them it brings rows 2t, 8 + 2t, 2t + 1 and
// 9 + 2t together, t = 0 to 3, and its own rows, 16 bytes of the matrix's rows, in the order 0, 2,
// ..., 14, 1, 3, ..., 15. The other factor has its elements in that order: rows g and g + 8 side by
// side, which one lane has of a product's sums.
#pragma once

#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_mma.cuh"
#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// Bytes from the start of eight rows of 128 bytes to row `row` % 8's 16-byte piece `piece`.
__device__ __forceinline__ kernels::u32 in_rows_of_128(kernels::u32 row, kernels::u32 piece) {
  return row % 8 * 128 + (piece ^ row % 8) * 16;
}
/// The same of eight rows of 64 bytes.
__device__ __forceinline__ kernels::u32 in_rows_of_64(kernels::u32 row, kernels::u32 piece) {
  return row % 8 * 64 + (piece ^ row / 2 % 4) * 16;
}

/// Of 32 rows, the piece at the address that each lane gives for the row of its number: the A
/// factor of a product with 16 rows and a sum of 32 elements.
__device__ __forceinline__ void load_columns(kernels::u32 (&factor)[4], kernels::u32 piece_of_row) {
  kernels::u32 words[4];
  load_matrices_transposed(words, piece_of_row);
  factor[0] = pick_bytes(words[0], words[1], 0x6240);
  factor[1] = pick_bytes(words[0], words[1], 0x7351);
  factor[2] = pick_bytes(words[2], words[3], 0x6240);
  factor[3] = pick_bytes(words[2], words[3], 0x7351);
}

}  // namespace kiln::device
