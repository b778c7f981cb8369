// The two records of a DeepSeek-V4.1 key/value cache and the model's fixed numbers.
//
// A record is the data of one cache slot, then its scales, without a gap (the interleaved layout).
#pragma once

#include "kernel_src/shared/qualifiers.hpp"
#include "kernel_src/shared/types.hpp"

namespace kiln::kernels::dsv41 {

inline constexpr u32 kHeadDim = 512;     // elements in a row; K and V are the same row
inline constexpr u32 kRopeDim = 64;      // the last elements of a row are rotated, in pairs
inline constexpr u32 kPaddedHeads = 64;  // heads of the padded query
inline constexpr u32 kQueryChunk = 16;   // elements of a head that lie together in it

enum class Record : u8 {
  fp8 = 0,    ///< 512 E4M3, then 16 UE8M0 scales, one per 32 elements
  nvfp4 = 1,  ///< 512 E2M1, the even element in the low nibble, then 32 E4M3 scales, one per 16
};

KILN_SHARED constexpr u32 data_bytes(Record record) {
  return record == Record::fp8 ? 512u : 256u;
}
KILN_SHARED constexpr u32 scale_elements(Record record) {
  return record == Record::fp8 ? 32u : 16u;
}
KILN_SHARED constexpr u32 record_bytes(Record record) {
  return data_bytes(record) + kHeadDim / scale_elements(record);
}

}  // namespace kiln::kernels::dsv41
