// Query, scores, softmax and outputs of one tile.
#pragma once

#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/dsv41_decode/swapab_common.cuh"
#include "kernel_src/shared/bf16.hpp"
#include "kernel_src/shared/rope.hpp"

namespace kiln::kernels::dsv41_decode::swapab {

// Q: rotated, rounded to bf16 and laid out as columns in the order of a tile's elements. A lane has
// eight elements of one head at a time, half of a step of the sum; a warp, four steps of 8 heads.

constexpr u32 kQueryRounds = kHeads / 16;

// A step's columns, and behind them those of the steps that the rest's products have with it: 64.
constexpr u32 kQueryColumns = kRestParts * kHeads;
constexpr u32 kQueryHalfBytes = kQueryColumns * 16;
constexpr u32 kRestSteps = 32 / kRestParts;
__device__ __forceinline__ constexpr u32 query_step(u32 step) {
  return step % kRestSteps * (2 * kQueryHalfBytes) + step / kRestSteps * (kHeads * 16);
}

struct QueryShare {
  Words4 eights[kQueryRounds][2];
};

// A lane's head is the same in all rounds, and its steps differ from the first one by constants.
__device__ __forceinline__ u32 query_head(u32 warp, u32 lane) {
  return warp % kHeadTiles * 8 + lane % 8;
}
__device__ __forceinline__ constexpr u32 further_steps(u32 round, u32 i) {
  return round * (kWarps / kHeadTiles * 4) + i * 2;
}
__device__ __forceinline__ u32 first_query_step(u32 warp, u32 lane) {
  return warp / kHeadTiles * 4 + lane / 16;
}
__device__ __forceinline__ u32 query_half(u32 lane) {
  return lane / 8 % 2;
}

__device__ __forceinline__ const u8* where_query_is(const Args& args, u32 token, u32 warp,
                                                    u32 lane) {
  return reinterpret_cast<const u8*>(args.query) +
         static_cast<u64>(token) * (32 * dsv41::kPaddedHeads * 32) +
         ((first_query_step(warp, lane) * dsv41::kPaddedHeads + query_head(warp, lane)) * 32 +
          query_half(lane) * 16);
}

__device__ __forceinline__ QueryShare load_query(const u8* from) {
  QueryShare share;
#pragma unroll
  for (u32 round = 0; round < kQueryRounds; ++round)
#pragma unroll
    for (u32 i = 0; i < 2; ++i)
      share.eights[round][i] =
          device::load_16(from + further_steps(round, i) * (dsv41::kPaddedHeads * 32));
  return share;
}

__device__ __forceinline__ void rotate(u32& pair, u32 cosine, u32 sine) {
  const float even = low_of_bf16x2(pair);
  const float odd = high_of_bf16x2(pair);
  pair = device::bf16x2_of_floats(rotated_even(even, odd, float_of(cosine), float_of(sine)),
                                  rotated_odd(even, odd, float_of(cosine), float_of(sine)));
}

// Of the last steps, which alone are rotated, and are in the last round.
struct QueryAngles {
  Words4 cosines[2];
  Words4 sines[2];
};

__device__ __forceinline__ bool is_rotated(u32 warp, u32 lane) {
  return first_query_step(warp, lane) + further_steps(kQueryRounds - 1, 0) >= kFirstRopeChunk;
}

__device__ __forceinline__ QueryAngles load_angles(const Args& args, u64 position, u32 warp,
                                                   u32 lane) {
  QueryAngles angles{};
  if (!is_rotated(warp, lane)) return angles;
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const u32 step = first_query_step(warp, lane) + further_steps(kQueryRounds - 1, i);
    const float* from = args.cos_sin + position * dsv41::kRopeDim + (step - kFirstRopeChunk) * 8 +
                        query_half(lane) * 4;
    angles.cosines[i] = device::load_16(from);
    angles.sines[i] = device::load_16(from + dsv41::kRopeDim / 2);
  }
  return angles;
}

template <class T, Record order>
__device__ __forceinline__ void store_query(const QueryShare& share, const QueryAngles& angles,
                                            u32 warp, u32 lane) {
  // No carry to the steps that lie elsewhere.
  static_assert(kWarps / kHeadTiles * 4 % kRestSteps == 0 && kRestSteps % 4 == 0);
  const u32 head = query_head(warp, lane);
  const u32 to = T::at.query + query_step(first_query_step(warp, lane)) +
                 query_half(lane) * kQueryHalfBytes + head / 8 * 128 + head % 8 * 16;
#pragma unroll
  for (u32 round = 0; round < kQueryRounds; ++round)
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const Words4& eight = share.eights[round][i];
      u32 p[4] = {eight.x, eight.y, eight.z, eight.w};
      if (round == kQueryRounds - 1 && is_rotated(warp, lane)) {
        const Words4& cosines = angles.cosines[i];
        const Words4& sines = angles.sines[i];
        rotate(p[0], cosines.x, sines.x);
        rotate(p[1], cosines.y, sines.y);
        rotate(p[2], cosines.z, sines.z);
        rotate(p[3], cosines.w, sines.w);
      }
      // The order of element_at().
      constexpr u32 other = order == Record::fp8 ? 1 : 2;  // the pair that a pair mixes with
      constexpr u32 next = 3 - other;
      store_shared_16(to + query_step(further_steps(round, i)),
                      {__byte_perm(p[0], p[other], 0x5410), __byte_perm(p[0], p[other], 0x7632),
                       __byte_perm(p[next], p[next + other], 0x5410),
                       __byte_perm(p[next], p[next + other], 0x7632)});
    }
}

// S of 16 of a warpgroup's 64 slots by all heads, over this warpgroup's part of the elements. Of
// the rest, 16 slots, parts of the elements are rows of one product with the same parts of Q: of
// its sums those are wanted whose row and column are of one part.

__device__ __forceinline__ void scores_to(float* to, u32 rows, u32 lane,
                                          const float (&sums)[kHeads / 2]) {
#pragma unroll
  for (u32 i = 0; i < kHeads / 2; ++i)
    to[(i / 4 * 8 + 2 * (lane % 4) + i % 2) * score_row_floats(rows) + i / 2 % 2 * 8] = sums[i];
}

template <class Products, class T>
__device__ __forceinline__ void rest_scores(u32 part, u32 lane) {
  constexpr u32 first = rows_at<T::tile>(whole_rows(T::tile), 0);
  const u32 records = Products::place(shared_base() + T::at.records + first);
  const u32 query = Products::place(shared_base() + T::at.query);
  float sums[kQueryColumns / 2] = {};
  Products::begin(sums);
#pragma unroll
  for (u32 step = 0; step < kRestSteps; ++step)
    Products::template add_rows<kQueryColumns>(
        sums, Products::after(records, rows_at<T::tile>(whole_rows(T::tile), step / 4) - first),
        step % 4 * 2, Products::after(query, query_step(step)));
  Products::end(sums);
  if (part >= kRestParts) return;
  float wanted[kHeads / 2];
#pragma unroll
  for (u32 i = 0; i < kHeads / 2; ++i) {
    wanted[i] = sums[i];
#pragma unroll
    for (u32 other = 1; other < kRestParts; ++other)
      if (part == other) wanted[i] = sums[other * (kHeads / 2) + i];
  }
  constexpr u32 rest = rest_rows(T::tile);
  scores_to(shared_at<float>(T::at.rest_scores) + part * kHeads * score_row_floats(rest) + lane / 4,
            rest, lane, wanted);
}

template <class Products, class T>
__device__ __forceinline__ void scores(u32 warp, u32 lane) {
  constexpr u32 row_tiles = T::tile / 64;
  constexpr u32 steps = 32 / splits(T::tile);  // of 16 elements
  const u32 warpgroup = warp / 4;
  const u32 rows = warpgroup % row_tiles * 64;
  const u32 split = warpgroup / row_tiles;
  const u32 first = split * steps;
  const u32 records =
      Products::place(shared_base() + T::at.records + rows_at<T::tile>(rows, first / 4));
  const u32 query = Products::place(shared_base() + T::at.query + query_step(first));
  if constexpr (rest_rows(T::tile) != 0) {
    if (warpgroup == kWarps / 8) rest_scores<Products, T>(warp % 4, lane);
  }
  if (split >= splits(T::tile)) return;
  float sums[kHeads / 2] = {};
  Products::begin(sums);
#pragma unroll
  for (u32 i = 0; i < steps; ++i)
    Products::template add_rows<kHeads, kQueryColumns>(
        sums, Products::after(records, rows_at<T::tile>(0, i / 4)), i % 4 * 2,
        Products::after(query, query_step(i)));
  Products::end(sums);
  constexpr u32 whole = whole_rows(T::tile);
  scores_to(shared_at<float>(T::at.scores) + split * kHeads * score_row_floats(whole) + rows +
                warp % 4 * 16 + lane / 4,
            whole, lane, sums);
}

// The tile's maximum, sum and P of one head by one warp, or of two heads by half of one each where
// half of its lanes have all slots.

template <class T>
__device__ __forceinline__ constexpr u32 lanes_of_head() {
  return T::tile == 64 ? 16 : 32;
}
template <class T>
__device__ __forceinline__ constexpr u32 heads_at_once() {
  return kWarps * 32 / lanes_of_head<T>();
}
template <class T>
__device__ __forceinline__ u32 softmax_head(u32 round, u32 warp, u32 lane) {
  return (round * kWarps + warp) * (32 / lanes_of_head<T>()) + lane / lanes_of_head<T>();
}

// Floats as integers that order as they do, and back; NaN is above all or below all.
__device__ __forceinline__ int ordered_of(float value) {
  const int bits = static_cast<int>(bits_of(value));
  return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ __forceinline__ float float_of_ordered(int ordered) {
  return float_of(static_cast<u32>(ordered ^ (ordered >> 31 & 0x7fffffff)));
}

struct Softmax {
  float maximum;
  float sum;  // of this lane
};

// P is stored as rows of slots, those of all heads' high terms before those of low ones.
template <class T>
__device__ __forceinline__ Softmax softmax(u32 head, u32 lane) {
  // A lane has four slots.
  constexpr bool has_rest = rest_rows(T::tile) != 0;
  static_assert(!has_rest || (whole_rows(T::tile) == 64 && rest_rows(T::tile) == 16));
  const bool of_rest = has_rest && lane >= 16;
  const bool counts = !has_rest || lane < 20;
  const u32 t = lane % 4;
  const u32 step = of_rest ? 4 : lane % lanes_of_head<T>() / 4;
  const u32 slot = step * 16 + 4 * t;
  constexpr u32 row = score_row_floats(whole_rows(T::tile));
  constexpr u32 rest_row = score_row_floats(rest_rows(T::tile));
  const u32 from = of_rest ? T::at.rest_scores + (head * rest_row + 4 * t) * 4
                           : T::at.scores + (head * row + slot) * 4;
  const u32 to_next = kHeads * (of_rest ? rest_row : row) * 4;
  constexpr u32 most_parts = larger_of(splits(T::tile), has_rest ? kRestParts : 1);
  float sums[4] = {};
#pragma unroll
  for (u32 split = 0; split < most_parts; ++split) {
    if (split >= (of_rest ? kRestParts : splits(T::tile))) continue;
    const Words4 part = load_shared_16(from + split * to_next);
    sums[0] += float_of(part.x);
    sums[1] += float_of(part.y);
    sums[2] += float_of(part.z);
    sums[3] += float_of(part.w);
  }
  const u32 valid = counts ? *shared_at<const u32>(T::at.valid + slot) : 0;
  const float none = float_of(0xff800000u);
  float x[4];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) x[i] = (valid >> 8 * i & 0xffu) != 0 ? sums[i] * kScoreScale : none;
  float maximum = device::larger(device::larger(x[0], x[1]), device::larger(x[2], x[3]));
  if constexpr (lanes_of_head<T>() == 32) {
    maximum = float_of_ordered(device::largest_of_warp(ordered_of(maximum)));
  } else {
#pragma unroll
    for (u32 across = 1; across < lanes_of_head<T>(); across *= 2)
      maximum =
          device::larger(maximum, float_of(device::from_lane_across(bits_of(maximum), across)));
  }
  const float reference = maximum == none ? 0.0f : maximum;
  float p[4];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) p[i] = device::power_of_2(x[i] - reference);
  if (counts) {
    const u32 to = T::at.weights + slot / 64 * weight_part_bytes(kHeads) + head / 8 * 1024 +
                   device::in_eight_rows(head, slot % 64 / 8) + t % 2 * 8;
    u32 highs[2], lows[2];
#pragma unroll
    for (u32 k = 0; k < 2; ++k) {
      const u32 high = device::bf16x2_of_floats(p[2 * k], p[2 * k + 1]);
      highs[k] = high;
      lows[k] = device::bf16x2_of_floats(p[2 * k] - low_of_bf16x2(high),
                                         p[2 * k + 1] - high_of_bf16x2(high));
    }
    *shared_at<Words2>(to) = {highs[0], highs[1]};
    *shared_at<Words2>(to + kHeads * 128) = {lows[0], lows[1]};
  }
  return {maximum, (p[0] + p[1]) + (p[2] + p[3])};
}

// O^T of 128 elements by all heads over the tile's slots, by a warpgroup: 16 elements of each half
// by a warp.

using OutputSums = float[2][kOutputColumns / 2];

// Of the first or the second half of them; they run on by themselves.
template <class Products, class T>
__device__ __forceinline__ void start_outputs(float (&sums)[kOutputColumns / 2], u32 half,
                                              u32 warp) {
  const u32 part = warp / 4 * 2 + half;
  constexpr u32 whole = whole_rows(T::tile);
  const u32 records = shared_base() + T::at.records;
  const u32 rows = Products::place(records + rows_at<T::tile>(0, part));
  const u32 rest = Products::place(records + rows_at<T::tile>(whole, part));
  const u32 weights = Products::place(shared_base() + T::at.weights);
  Products::begin(sums);
#pragma unroll
  for (u32 step = 0; step < T::tile / 16; ++step)
    Products::template add_transposed<kOutputColumns>(
        sums, step * 16 < whole ? Products::after(rows, step * 2048) : rest,
        Products::after(weights, step / 4 * weight_part_bytes(kHeads)), step % 4 * 2);
  Products::let_run();
}

}  // namespace kiln::kernels::dsv41_decode::swapab
