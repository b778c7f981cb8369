// The cache writer on the host, twice: the kernel's own arithmetic, which gives its exact bytes,
// and the same mathematics in double, written apart, which says what those bytes ought to be.
//
// Threads: pure functions over the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernel_src/dsv41_kv_insert/key.hpp"
#include "kernel_src/dsv41_kv_insert/launch.hpp"
#include "kiln/cache/api.hpp"

namespace kiln::kernels::dsv41_kv_insert {

inline constexpr std::size_t kMostRecordBytes = 528;

/// Writes the record of one row as the kernel does, operation for operation in fp32.
///
/// Shapes  row [512] bf16; cos_sin [32 cos, 32 sin] of the position that the row is rotated to;
///         record [record_bytes(record)]
KILN_API void model_record(Record record, std::span<const u16> row, std::span<const float> cos_sin,
                           std::span<u8> bytes);

/// The whole call as the kernel does it, all pointers being host pointers, byte for byte: what the
/// kernel does not write is not written. Requires check(key, arguments) to pass.
KILN_API void model(const Key& key, const Arguments& arguments);

/// A record by exact mathematics in double.
struct ReferenceRecord {
  std::array<u8, kMostRecordBytes> bytes{};
  /// False where a value lies so near to a rounding boundary that fp32 may end on the other side:
  /// within 2^-22 of the terms of its rotation, or, for the quotient that an NVFP4 scale is rounded
  /// from, within 2^-23 of itself. Where the arithmetic is exact there is no such band.
  std::array<bool, kMostRecordBytes> certain{};
};
KILN_API ReferenceRecord reference_record(Record record, std::span<const u16> row,
                                          std::span<const float> cos_sin);

}  // namespace kiln::kernels::dsv41_kv_insert
