// One call of sparse decode attention over DeepSeek-V4.1 caches, as its caller fills it in, and
// what comes out of every input.
//
// Threads: values.
#pragma once

#include <cstdint>

namespace kiln::kernels::dsv41_decode {

// For each token and head: out = sum_i p_i * k_i, p = softmax over the listed records k_i of
// q . k_i * 512^-0.5, with the sink as one more term of the denominator. K and V are the same row.
// Records are what dsv41_kv_insert writes; so is the query.
//
//   query       dims 448..511 rotated at the token's position, in interleaved pairs and in fp32 as
//               shared/rope.hpp does it; the results rounded to bf16. Dims 0..447 as they are
//   output      those dims rotated back (even*cos + odd*sin, odd*cos - even*sin) in fp32, then
//               rounded to MXFP8 in blocks of 32 dims: amax of what is no NaN, at least 1e-4; the
//               smallest power of two 2^e with amax <= 448 * 2^e; scale byte e + 127; data =
//               out * 2^-e to E4M3, ties to even
//
// What the inputs may be:
//
//   list entry      skipped where negative, at its list's length or behind it, or not below
//                   pages * page_slots; listed twice it counts twice; its order does not matter but
//                   for rounding
//   length          below 0 is 0, above the list's width is the width
//   no valid entry  out is 0, scale bytes 105
//   sink            exp(sink) joins the denominator once; -infinity changes nothing, +infinity
//                   makes out 0, NaN makes the head's out NaN, even without a valid entry
//   position        negative or not below rope_positions: nothing is written for the token
//   fp8 data        0x7f and 0xff, E4M3's NaN, count as +-480 times the scale
//   fp8 scale       2^(code - 127); codes above 166, scales of 2^40 and more and the NaN 255 among
//                   them, make NaN. Products below 2^-94 may lose bits or be 0
//   NVFP4 scale     0x7f and 0xff make NaN; a sign counts
//   NaN in a record of a valid entry, or in a query that has one: out is NaN in every dim of the
//                   heads it meets, whatever the sink
//   NaN in out      data byte 0x7f; it plays no part in its block's scale
//   sign of zero    promised nowhere
//
// What is written lies apart from what is read; it may lie in the gaps that strides leave.
// Scores and sums must fit fp32: what overflows it is not promised. Memory that no valid entry
// names is never looked at; query heads from Key::heads on have no influence. Written are the data
// and scale bytes of live heads and nothing else: whole groups with 8 heads or more.

/// One call. All pointers are device pointers.
struct Arguments {
  const void* query = nullptr;                // [tokens, 32 chunks, 64 heads, 16] bf16, not rotated
  const std::int64_t* positions = nullptr;    // [tokens]
  const float* cos_sin = nullptr;             // [rope_positions, 32 cos then 32 sin]
  const float* sinks = nullptr;               // [Key::heads]; null: no sinks at all
  const void* swa_cache = nullptr;            // fp8 records, [swa_pages]
  const std::int32_t* swa_slots = nullptr;    // [tokens, Key::swa_slots]
  const std::int32_t* swa_lengths = nullptr;  // [tokens]
  // These three are null at Key::compressed_slots 0.
  const void* compressed_cache = nullptr;            // Key::record, [compressed_pages]
  const std::int32_t* compressed_slots = nullptr;    // [tokens, Key::compressed_slots]
  const std::int32_t* compressed_lengths = nullptr;  // [tokens]
  // [tokens, 8 groups, 4096] E4M3. Element (c*8 + h)*32 + j of group g is dim c*32 + j of head
  // g*8 + h.
  void* output = nullptr;
  // UE8M0. The scale of block b = c*8 + h of group g of a token is the byte
  // (token + g * scale_group_stride_words + b/4 * scale_column_stride_words) * 4 + b%4.
  void* output_scales = nullptr;
  std::uint64_t swa_page_stride_bytes = 0;
  std::uint64_t swa_row_stride_bytes = 0;  // slot to slot; 0: the record's bytes
  std::uint64_t swa_pages = 0;
  std::uint64_t compressed_page_stride_bytes = 0;
  std::uint64_t compressed_row_stride_bytes = 0;  // slot to slot; 0: the record's bytes
  std::uint64_t compressed_pages = 0;
  std::uint64_t output_stride_bytes = 0;        // token to token; 0: 32768
  std::uint64_t scale_group_stride_words = 0;   // from group to group, in words of four scales
  std::uint64_t scale_column_stride_words = 0;  // from four blocks to the next four
  std::uint64_t rope_positions = 0;
  std::uint64_t tokens = 0;  // 0: nothing is read, written or launched
};

}  // namespace kiln::kernels::dsv41_decode
