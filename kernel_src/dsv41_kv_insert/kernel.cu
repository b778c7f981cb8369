// record[slot[t]] = quantise(rope(row[t], position[t] / ratio * ratio)), for the tokens that close
// a group of `ratio` positions; padded_query[t, d / 16, h, d % 16] = h < heads ? query[t, h, d] :
// 0.
//
// The first blocks write records, a warp for a record: a lane holds 16 neighbouring elements, so an
// NVFP4 group is one lane's and an MXFP8 group that of two. The blocks after them copy queries, a
// thread for 1, 2 or 4 pieces of 16 bytes, so that one token keeps up to 32 blocks busy.
#include "jit/key.cuh"
#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_grid_dependency.cuh"
#include "kernel_src/device/ptx_memory.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/dsv41_kv_insert/args.hpp"
#include "kernel_src/shared/bf16.hpp"
#include "kernel_src/shared/dsv41_record.hpp"
#include "kernel_src/shared/e2m1.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "kernel_src/shared/nvfp4.hpp"
#include "kernel_src/shared/rope.hpp"
#include "kernel_src/shared/ue8m0.hpp"

namespace kiln::kernels::dsv41_kv_insert {

constexpr dsv41::Record kRecord = static_cast<dsv41::Record>(key::record);
constexpr u32 kHeads = key::heads;
constexpr u64 kPageSlots = key::page_slots;
constexpr u64 kRatio = key::ratio;
constexpr u32 kLaneElements = dsv41::kHeadDim / 32;
constexpr u32 kFirstRopeLane = (dsv41::kHeadDim - dsv41::kRopeDim) / kLaneElements;

static_assert(kHeads == 0 || dsv41::kPaddedHeads % kHeads == 0, "heads must divide 64");
static_assert(kPageSlots > 0 && (kPageSlots & (kPageSlots - 1)) == 0, "a power of two");
static_assert(kRatio == 1 || kRatio == 2, "ratio is 1 or 2");
static_assert(kRecord == dsv41::Record::fp8 || kRecord == dsv41::Record::nvfp4, "no such record");

using device::Words4;

__device__ __forceinline__ void widen(const Words4& words, float* values) {
  const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    values[2 * i] = low_of_bf16x2(pairs[i]);
    values[2 * i + 1] = high_of_bf16x2(pairs[i]);
  }
}

__device__ __forceinline__ void rotate(float (&values)[kLaneElements], const float* cos_sin) {
  const float* from = cos_sin;
#pragma unroll
  for (u32 half = 0; half < 2; ++half) {
    const Words4 c = device::load_16(from + 4 * half);
    const Words4 s = device::load_16(from + dsv41::kRopeDim / 2 + 4 * half);
    const u32 cosines[4] = {c.x, c.y, c.z, c.w};
    const u32 sines[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const float even = values[8 * half + 2 * i];
      const float odd = values[8 * half + 2 * i + 1];
      const float cosine = float_of(cosines[i]);
      const float sine = float_of(sines[i]);
      values[8 * half + 2 * i] = rotated_even(even, odd, cosine, sine);
      values[8 * half + 2 * i + 1] = rotated_odd(even, odd, cosine, sine);
    }
  }
}

// A NaN costs its own element only: the scale is that of the others.
__device__ __forceinline__ void store_fp8(const float (&values)[kLaneElements], u32 lane,
                                          u8* record) {
  float amax = kUe8m0AmaxFloor;
#pragma unroll
  for (u32 i = 0; i < kLaneElements; ++i)
    amax = device::larger(amax, float_of(magnitude_bits(values[i])));
  amax = device::larger(amax, float_of(device::from_lane_across(bits_of(amax), 1)));
  const u32 scale = ue8m0_for_e4m3(amax);
  const float factor = ue8m0_reciprocal(scale);
  u32 words[4];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    const u32 low = device::e4m3x2_of_floats(values[4 * i] * factor, values[4 * i + 1] * factor);
    const u32 high =
        device::e4m3x2_of_floats(values[4 * i + 2] * factor, values[4 * i + 3] * factor);
    words[i] = low | (high << 16);
  }
  if (record == nullptr) return;
  device::store_16(record + lane * 16, {words[0], words[1], words[2], words[3]});
  if (lane % 2 == 0) device::store_1(record + dsv41::data_bytes(kRecord) + lane / 2, scale);
}

// A NaN makes its group's scale NaN, since E2M1 has none.
__device__ __forceinline__ void store_nvfp4(const float (&values)[kLaneElements], u32 lane,
                                            u8* record) {
  u32 amax = 0;
#pragma unroll
  for (u32 i = 0; i < kLaneElements; ++i) {
    const u32 magnitude = magnitude_bits(values[i]);
    amax = magnitude > amax ? magnitude : amax;
  }
  const bool has_nan = is_nan_magnitude(amax);
  const u32 scale =
      has_nan ? kE4m3Nan : device::e4m3x2_of_floats(nvfp4_scale(float_of(amax)), 0.0f);
  const float divisor = float_of_e4m3(scale);
  const float reciprocal = 1.0f / divisor;
  u32 words[2] = {0, 0};
#pragma unroll
  for (u32 i = 0; i < kLaneElements; ++i)
    words[i / 8] |= e2m1_of_quotient(values[i], divisor, reciprocal) << (4 * (i % 8));
  // What the conversion instruction of sm_100a makes of NaN.
  if (has_nan) words[0] = words[1] = kE2m1NanWord;
  const u32 next_0 = device::from_lane_across(words[0], 1);
  const u32 next_1 = device::from_lane_across(words[1], 1);
  if (record == nullptr) return;
  if (lane % 2 == 0) device::store_16(record + lane * 8, {words[0], words[1], next_0, next_1});
  device::store_1(record + dsv41::data_bytes(kRecord) + lane, scale);
}

__device__ __forceinline__ void write_record(const Args& args, u32 token, u32 lane) {
  const u8* row = reinterpret_cast<const u8*>(args.rows) + token * args.input_stride_bytes;
  const Words4 first = device::load_16(row + lane * 32);
  const Words4 second = device::load_16(row + lane * 32 + 16);
  const u64 slot = static_cast<u64>(args.slots[token]);
  const u64 position = static_cast<u64>(args.positions[token]);
  // Unsigned: negative numbers are too large as well.
  const bool in_range = slot < args.cache_slots && position < args.rope_positions;
  const bool wanted = in_range && position % kRatio == kRatio - 1;

  // A row that is not wanted goes all the way to the stores. Leaving here would let the compiler
  // fetch the row only after the slot has come, and that wait is the larger part of a decoding
  // step.
  float values[kLaneElements];
  widen(first, values);
  widen(second, values + 8);
  if (lane >= kFirstRopeLane && wanted) {
    const u64 angle = position / kRatio * kRatio;
    rotate(values, args.cos_sin + angle * dsv41::kRopeDim + (lane - kFirstRopeLane) * 8);
  }
  u8* record = wanted ? args.cache + slot / kPageSlots * args.page_stride_bytes +
                            slot % kPageSlots * args.row_stride_bytes
                      : nullptr;
  if constexpr (kRecord == dsv41::Record::fp8) {
    store_fp8(values, lane, record);
  } else {
    store_nvfp4(values, lane, record);
  }
}

// Piece p of a padded query is half p % 2 of head p / 2 % 64 of chunk p / 128. A block's pieces are
// whole chunks, so a thread has the same head in all of its pieces.
// A template, so that a kernel without heads does not instantiate it.
template <u32 heads>
__device__ __forceinline__ void copy_query(const Args& args, u32 block) {
  static_assert(kBlockThreads == 2 * dsv41::kPaddedHeads, "a block's round is one chunk");
  const u32 blocks_log2 = 5 - args.thread_pieces_log2;
  const u32 token = block >> blocks_log2;
  const u32 chunk = (block & ((1u << blocks_log2) - 1u)) << args.thread_pieces_log2;
  const u32 pieces = 1u << args.thread_pieces_log2;
  const u32 head = threadIdx.x / 2;
  constexpr u32 most = 1u << kMostThreadPiecesLog2;

  Words4 words[most];
  const u8* from = reinterpret_cast<const u8*>(args.query) + token * args.query_stride_bytes +
                   head * (dsv41::kHeadDim * 2) + chunk * 32 + threadIdx.x % 2 * 16;
#pragma unroll
  for (u32 i = 0; i < most; ++i) {
    words[i] = {0, 0, 0, 0};
    if (i < pieces && head < heads) words[i] = device::load_16_once(from + i * 32);
  }
  u8* to = reinterpret_cast<u8*>(args.padded_query) + static_cast<u64>(token) * kQueryPieces * 16 +
           chunk * (kBlockThreads * 16) + threadIdx.x * 16;
#pragma unroll
  for (u32 i = 0; i < most; ++i)
    if (i < pieces) device::store_16(to + i * (kBlockThreads * 16), words[i]);
}

}  // namespace kiln::kernels::dsv41_kv_insert

extern "C" __global__ void __launch_bounds__(kiln::kernels::dsv41_kv_insert::kBlockThreads)
    entry(const __grid_constant__ kiln::kernels::dsv41_kv_insert::Args args) {
  using namespace kiln::kernels::dsv41_kv_insert;
  // At once: the next kernel's own wait covers this grid's end, and the wait below the end of all
  // before it. Even the stores need the wait: the kernel before may still read what they overwrite.
  kiln::device::allow_next_kernel();
  kiln::device::wait_for_previous_kernels();
  if (blockIdx.x >= args.row_blocks) {
    if constexpr (kHeads != 0) copy_query<kHeads>(args, blockIdx.x - args.row_blocks);
    return;
  }
  const unsigned token = blockIdx.x * kBlockRows + threadIdx.x / 32;
  if (token < args.tokens) write_record(args, token, threadIdx.x % 32);
}
