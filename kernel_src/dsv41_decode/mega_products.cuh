// The two warpgroups that compute: query, scores, softmax and outputs, tile after tile.
//
// Heads lie on the matrix units' rows, 64 of them, live or not. Each warpgroup adds up the scores
// over its half of the elements, hands the other its sums, and has the outputs' same half; so both
// know all of P, which stays in registers.
#pragma once

#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_barrier.cuh"
#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/device/tile_products.cuh"
#include "kernel_src/dsv41_decode/mega_common.cuh"
#include "kernel_src/shared/bf16.hpp"
#include "kernel_src/shared/rope.hpp"

namespace kiln::kernels::dsv41_decode::mega {

constexpr u32 kGroups = kConsumerThreads / 128;
constexpr u32 kGroupParts = 8 / kGroups;  // of 64 elements
constexpr u32 kConsumerBarrier = 1;       // 0 is __syncthreads()
constexpr u32 kRegistersBarrier = 2;      // those that compute have their registers

// A new reference only where the maximum has grown by more than this, in powers of 2.
constexpr float kSlack = 6.0f;

// 16 elements of a head, `chunk` of 32, rotated, to where they lie in a tile with a head a row.
__device__ __forceinline__ void store_query(const Args& args, const Words4 (&words)[2], u32 head,
                                            u32 chunk, u64 position) {
  u32 pairs[8] = {words[0].x, words[0].y, words[0].z, words[0].w,
                  words[1].x, words[1].y, words[1].z, words[1].w};
  if (chunk >= kFirstRopeChunk) {
    const float* angles = args.cos_sin + position * dsv41::kRopeDim + (chunk - kFirstRopeChunk) * 8;
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
      const float even = low_of_bf16x2(pairs[j]);
      const float odd = high_of_bf16x2(pairs[j]);
      const float cosine = angles[j];
      const float sine = angles[dsv41::kRopeDim / 2 + j];
      pairs[j] = device::bf16x2_of_floats(rotated_even(even, odd, cosine, sine),
                                          rotated_odd(even, odd, cosine, sine));
    }
  }
  const u32 to = At::query + chunk / 4 * kPartBytes + head / 8 * 1024;
#pragma unroll
  for (u32 half = 0; half < 2; ++half) {
    const u32* p = pairs + 4 * half;
    store_shared_16(to + device::in_eight_rows(head, chunk % 4 * 2 + half),
                    {__byte_perm(p[0], p[2], 0x5410), __byte_perm(p[0], p[2], 0x7632),
                     __byte_perm(p[1], p[3], 0x5410), __byte_perm(p[1], p[3], 0x7632)});
  }
}

// Rows of dead heads stay as they are, or zero: what they hold reaches no live head.
__device__ __forceinline__ void bring_query(const Args& args, u32 token, u64 position) {
  constexpr u32 rows = kHeads < 8 ? 8 : kHeads;
  constexpr u32 rounds = rows * 32 / kConsumerThreads;
  constexpr u32 batch = rounds < 4 ? rounds : 4;  // that are loaded at once
#pragma unroll
  for (u32 first = 0; first < rounds; first += batch) {
    Words4 words[batch][2] = {};
#pragma unroll
    for (u32 i = 0; i < batch; ++i) {
      const u32 piece = (first + i) * kConsumerThreads + threadIdx.x;
      const u32 head = piece % 8 + piece / 8 % (rows / 8) * 8;
      const u8* from =
          reinterpret_cast<const u8*>(args.query) +
          ((static_cast<u64>(token) * 32 + piece / rows) * dsv41::kPaddedHeads + head) * 32;
      if (head >= kHeads) continue;
      words[i][0] = device::load_16(from);
      words[i][1] = device::load_16(from + 16);
    }
#pragma unroll
    for (u32 i = 0; i < batch; ++i) {
      const u32 piece = (first + i) * kConsumerThreads + threadIdx.x;
      store_query(args, words[i], piece % 8 + piece / 8 % (rows / 8) * 8, piece / rows, position);
    }
  }
}

// A thread has two heads: row `lane` / 4 of its warp's 16, and 8 further on.
struct Sums {
  float outputs[2][64] = {};  // of 128 elements each
  float reference[2] = {-1e30f, -1e30f};
  float total[2] = {};  // of this thread's slots
};

using Scores = float[32];

template <class Products>
__device__ __forceinline__ void add_scores(Scores& scores, u32 buffer) {
  const u32 group = threadIdx.x / 128;
  const u32 query = shared_base() + At::query + group * kGroupParts * kPartBytes;
  const u32 rows =
      shared_base() + At::records + buffer * kTileBytes + group * kGroupParts * kPartBytes;
#pragma unroll
  for (u32 part = 0; part < kGroupParts; ++part)
#pragma unroll
    for (u32 step = 0; step < 4; ++step)
      Products::add_rows_by_rows(scores, query + part * kPartBytes, rows + part * kPartBytes,
                                 step * 2);
}

// The sums over all elements: both groups add the same two numbers.
__device__ __forceinline__ void exchange(Scores& scores) {
  const u32 group = threadIdx.x / 128;
  const u32 lane_at = threadIdx.x % 128 * 16;
  const u32 own = At::scores + group * (kRows * kTile * 4) + lane_at;
  const u32 other = At::scores + (1 - group) * (kRows * kTile * 4) + lane_at;
#pragma unroll
  for (u32 i = 0; i < 8; ++i)
    store_shared_16(own + i * 2048, {bits_of(scores[4 * i]), bits_of(scores[4 * i + 1]),
                                     bits_of(scores[4 * i + 2]), bits_of(scores[4 * i + 3])});
  device::barrier_sync(kConsumerBarrier, kConsumerThreads);
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const Words4 words = load_shared_16(other + i * 2048);
    scores[4 * i] += float_of(words.x);
    scores[4 * i + 1] += float_of(words.y);
    scores[4 * i + 2] += float_of(words.z);
    scores[4 * i + 3] += float_of(words.w);
  }
  device::barrier_sync(kConsumerBarrier, kConsumerThreads);  // before either writes again
}

// P as the matrix units take it from registers, 16 slots a step.
using Weights = u32[kSteps][4];

__device__ __forceinline__ void softmax(Weights& weights, Scores& scores, Sums& sums, u32 round) {
  const float none = float_of(0xff800000u);
  float maximum[2] = {none, none};
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const u16 valid = *shared_at<const u16>(At::valid + round % kValidTiles * kTile + i * 8 +
                                            threadIdx.x % 4 * 2);
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      float& x = scores[4 * i + j];
      x = (valid & (j % 2 == 0 ? 0xffu : 0xff00u)) != 0 ? x * kScoreScale : none;
      maximum[j / 2] = device::larger(maximum[j / 2], x);
    }
  }
  bool grown = false;
#pragma unroll
  for (u32 row = 0; row < 2; ++row) {
#pragma unroll
    for (u32 across = 1; across < 4; across *= 2)
      maximum[row] = device::larger(
          maximum[row], float_of(device::from_lane_across(bits_of(maximum[row]), across)));
    grown |= maximum[row] > sums.reference[row] + kSlack;
  }
  if (round == 0) {  // nothing is summed up yet
#pragma unroll
    for (u32 row = 0; row < 2; ++row)
      sums.reference[row] = device::larger(maximum[row], sums.reference[row]);
  } else if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
      float factor = 1.0f;
      if (maximum[row] > sums.reference[row] + kSlack) {
        factor = device::power_of_2(sums.reference[row] - maximum[row]);
        sums.reference[row] = maximum[row];
      }
      sums.total[row] *= factor;
#pragma unroll
      for (u32 half = 0; half < 2; ++half)
#pragma unroll
        for (u32 i = 0; i < 16; ++i) {
          sums.outputs[half][4 * i + 2 * row] *= factor;
          sums.outputs[half][4 * i + 2 * row + 1] *= factor;
        }
    }
  }
#pragma unroll
  for (u32 i = 0; i < 8; ++i)
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
      const float p0 = device::power_of_2(scores[4 * i + 2 * row] - sums.reference[row]);
      const float p1 = device::power_of_2(scores[4 * i + 2 * row + 1] - sums.reference[row]);
      sums.total[row] += p0 + p1;
      weights[i / 2][i % 2 * 2 + row] = device::bf16x2_of_floats(p0, p1);
    }
}

template <class Products>
__device__ __forceinline__ void add_outputs(Sums& sums, const Weights& weights, u32 buffer) {
  const u32 group = threadIdx.x / 128;
  const u32 rows =
      shared_base() + At::records + buffer * kTileBytes + group * kGroupParts * kPartBytes;
#pragma unroll
  for (u32 step = 0; step < kSteps; ++step)
#pragma unroll
    for (u32 half = 0; half < 2; ++half)
      Products::add_weighted_rows(sums.outputs[half], weights[step],
                                  rows + half * 2 * kPartBytes + step * 2048, kPartBytes);
}

__device__ __forceinline__ void wait_full(u32 round) {
  while (!device::barrier_try_wait(barrier_at(kFull + round % kTiles * 8), round / kTiles % 2)) {
  }
}

template <class Products>
__device__ __forceinline__ void consume(Sums& sums, const Lengths& lengths) {
  const u32 blocks = device::cluster_blocks();
  u32 round = 0;
  for (u32 tile = lengths.from(device::cluster_rank(), blocks); tile < kAllTiles;
       tile = lengths.from(tile + blocks, blocks), ++round) {
    const u32 buffer = round % kTiles;
    Scores scores = {};
    wait_full(round);
    Products::begin(scores);
    add_scores<Products>(scores, buffer);
    Products::end(scores);
    exchange(scores);
    Weights weights;
    softmax(weights, scores, sums, round);
    Products::begin(sums.outputs[0], sums.outputs[1], weights);
    add_outputs<Products>(sums, weights, buffer);
    Products::end(sums.outputs[0], sums.outputs[1]);
    if (threadIdx.x % 32 == 0) device::barrier_arrive(barrier_at(kEmpty + buffer * 8));
  }
}

}  // namespace kiln::kernels::dsv41_decode::mega
