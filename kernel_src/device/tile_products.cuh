// Products of a tile in shared memory with columns in shared memory: what both back-ends agree on.
//
// A tile has rows of bf16, 64 elements of a row in 128 bytes; eight rows are 1024 bytes, aligned to
// as many, in which 16-byte pieces change places: piece p of row r is at place p ^ (r % 8). Further
// elements of the rows lie in further such blocks. Both back-ends read it by rows or by columns.
//
// Columns have 16 elements of the sum in a step. They lie as matrices of 8 columns by 8 elements,
// 16 bytes a column, 128 bytes a matrix: elements 0 to 7 of all columns, then elements 8 to 15. A
// product may take some of them.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// Bytes from the start of eight rows to row `row` % 8's 16-byte piece `piece`.
__device__ __forceinline__ kernels::u32 in_eight_rows(kernels::u32 row, kernels::u32 piece) {
  return row % 8 * 128 + (piece ^ row % 8) * 16;
}

}  // namespace kiln::device
