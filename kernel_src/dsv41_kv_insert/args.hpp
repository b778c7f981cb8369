// What changes with every call; passed by value as one grid constant.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::kernels::dsv41_kv_insert {

inline constexpr u32 kBlockThreads = 128;
/// A warp writes a record.
inline constexpr u32 kBlockRows = kBlockThreads / 32;
/// A token's padded query in pieces of 16 bytes.
inline constexpr u32 kQueryPieces = 4096;
/// A thread copies at most 2^2 of them, all loads before the first store.
inline constexpr u32 kMostThreadPiecesLog2 = 2;

struct Args {
  const u16* query = nullptr;   // [tokens, heads, 512] bf16, heads contiguous; null without heads
  u16* padded_query = nullptr;  // [tokens, 32 chunks, 64 heads, 16] bf16; null without heads
  const u16* rows = nullptr;    // [tokens, 512] bf16
  const i64* positions = nullptr;  // [tokens]
  const i64* slots = nullptr;      // [tokens]; negative: the row is not written
  const float* cos_sin = nullptr;  // [rope_positions, 32 cos then 32 sin]
  u8* cache = nullptr;
  u64 query_stride_bytes = 0;  // from token to token
  u64 input_stride_bytes = 0;  // from row to row
  u64 page_stride_bytes = 0;
  u64 row_stride_bytes = 0;  // from slot to slot in a page
  u64 cache_slots = 0;       // slots from this number on are not written
  u64 rope_positions = 0;    // rows at positions from this number on are not written
  u32 tokens = 0;
  u32 row_blocks = 0;  // the first blocks of the grid write records, the others copy queries
  u32 thread_pieces_log2 = 0;  // pieces of a query that a thread copies
  u32 unused = 0;              // no bytes without a value
};
static_assert(sizeof(Args) == 120, "host and device must agree");

}  // namespace kiln::kernels::dsv41_kv_insert
