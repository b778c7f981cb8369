// A tile of keys: scores, weights, and the weighted sum of its values. Keys lie on the matrix
// units' rows in the first product and dims in the second; the packed rows are columns of both.
//
// Each warpgroup scores a page of the tile and sums 256 dims over all of it. A thread has columns
// 8 i + 2 c and the next one, c = lane % 4, of keys g and g + 8, or dims 2 g and 2 g + 1, g = lane
// / 4.
#pragma once

#include "kernel_src/device/e4m3_products.cuh"
#include "kernel_src/device/ptx_arithmetic.cuh"
#include "kernel_src/device/ptx_barrier.cuh"
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/kimi_k3_mla/attend_common.cuh"
#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels::kimi_k3_mla::attend {

constexpr u32 kConsumerBarrier = 1;
constexpr u32 kOwn = kColumns / 4;   // columns of a thread
constexpr u32 kHeld = kColumns / 2;  // sums of a thread in 64 rows of a product
constexpr u32 kDimBlocks = 4;        // of 64 dims, of a warpgroup

// What a thread knows of its columns.
struct Columns {
  float shift[kOwn];  // what a score in powers of two is moved by: kWeightShift - the reference
  float sum[kOwn];    // of this thread's weights so far
};
struct Outputs {
  float dims[kDimBlocks][kHeld];
};

// A float as an integer of the same order.
__device__ __forceinline__ int ordered(int bits) {
  return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ __forceinline__ u32 column_of(u32 own) {
  return own / 2 * 8 + threadIdx.x % 4 * 2 + own % 2;
}

// Starts the products of all columns with the page's keys.
template <class Products>
__device__ __forceinline__ void start_scores(float (&scores)[kHeld], u32 page) {
  const u32 keys = Products::place(page), query = Products::place(shared_at(kAt.query));
  constexpr int kAllAtOnce = Products::kGoesOn ? kParts * 4 : 1;
  Products::begin();
  Products::template rows_of_128<kColumns, false>(scores, keys, query, 0);
#pragma unroll kAllAtOnce
  for (u32 step = 1; step < kParts * 4; ++step)
    Products::template rows_of_128<kColumns, true>(
        scores, Products::after(keys, step / 4 * kPartBytes),
        Products::after(query, step / 4 * (kColumns * 128)), step % 4);
#pragma unroll
  for (u32 step = 0; step < 2; ++step)
    Products::template rows_of_64<kColumns, true>(
        scores, Products::after(keys, kParts * kPartBytes),
        Products::after(query, kParts * (kColumns * 128)), step);
  Products::go();
}

// Takes away what a row does not see. `key` is the thread's first.
__device__ __forceinline__ void mask(float (&exponents)[kHeld], const Args& args, const Item& item,
                                     int key) {
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
    const int row = item.first_row + static_cast<int>(column_of(own));
    const int sees = smaller(item.see_from + row / static_cast<int>(args.heads), item.keys);
#pragma unroll
    for (u32 half = 0; half < 2; ++half)
      if (key + static_cast<int>(half) * 8 >= sees)
        exponents[own / 2 * 4 + half * 2 + own % 2] = float_of(kInfinityBits | kSignBit);
  }
}

// Products to exponents of weights.
__device__ __forceinline__ void scale(float (&exponents)[kHeld], const float (&scores)[kHeld],
                                      const Columns& columns, float score_scale) {
#pragma unroll
  for (u32 i = 0; i < kHeld; ++i)
    exponents[i] = scores[i] * score_scale + columns.shift[i / 4 * 2 + i % 2];
}

// Whether E4M3 holds all of the thread's weights.
__device__ __forceinline__ bool fit(const float (&exponents)[kHeld]) {
  float largest[4];
#pragma unroll
  for (u32 i = 0; i < kHeld; ++i)
    largest[i % 4] = i < 4 ? exponents[i] : device::larger(largest[i % 4], exponents[i]);
  return device::larger(device::larger(largest[0], largest[1]),
                        device::larger(largest[2], largest[3])) <= kMostExponent;
}

// Lanes that differ in a bit of their number share out `count` columns, each of which then is the
// larger one of theirs; an odd number of them stays with both. A lane's are then the first ones.
KILN_SHARED constexpr u32 shared_out(u32 count) {
  return count % 2 == 0 ? count / 2 : count;
}
template <u32 count>
__device__ __forceinline__ void share_out(float (&largest)[kOwn], u32 across) {
  constexpr u32 left = shared_out(count);
  const bool second = left != count && (device::lane_anew() & across) != 0;
#pragma unroll
  for (u32 i = 0; i < left; ++i) {
    const float other = largest[i + count - left];
    const float sent = second || left == count ? largest[i] : other;
    largest[i] = device::larger(second ? other : largest[i],
                                float_of(device::from_lane_across(bits_of(sent), across)));
  }
}

// By all consumers: takes the tile's largest scores into the references, and what there is to the
// new ones. In the first tile there is nothing yet.
__device__ __forceinline__ void set_references(float (&exponents)[kHeld], Columns& columns,
                                               Outputs& outputs, bool first) {
  const float room = first ? 0 : kRoomToRise;
  float largest[kOwn];
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
    const u32 at = own / 2 * 4 + own % 2;
    largest[own] = device::larger(exponents[at], exponents[at + 2]) + (room - columns.shift[own]);
  }
  constexpr u32 half = shared_out(kOwn), quarter = shared_out(half), left = shared_out(quarter);
  share_out<kOwn>(largest, 4);
  share_out<half>(largest, 8);
  share_out<quarter>(largest, 16);
  const u32 lane = device::lane_anew();
  const u32 first_own =
      lane / 4 % 2 * (kOwn - half) + lane / 8 % 2 * (half - quarter) + lane / 16 * (quarter - left);
#pragma unroll
  for (u32 i = 0; i < left; ++i)
    device::keep_larger(shared_at(kAt.maxima) + column_of(first_own + i) * 4,
                        ordered(static_cast<int>(bits_of(largest[i]))));
  device::barrier_sync(kConsumerBarrier, kConsumerThreads);
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
    const float reference = float_of(static_cast<u32>(ordered(
        static_cast<int>(device::load_shared_4(shared_at(kAt.maxima) + column_of(own) * 4)))));
    // A row that sees no key of the first tile sees none at all.
    const float shift = reference == kNoMaximum ? 0 : kWeightShift - reference;
    const float move = shift - columns.shift[own];
    const float kept = first ? 0 : device::power_of_2(move);
    columns.shift[own] = shift;
    columns.sum[own] *= kept;
    const u32 at = own / 2 * 4 + own % 2;
    exponents[at] += move;
    exponents[at + 2] += move;
#pragma unroll
    for (u32 block = 0; block < kDimBlocks; ++block) {
      outputs.dims[block][at] *= kept;
      outputs.dims[block][at + 2] *= kept;
    }
  }
}

// Writes the weights of the page `half` of the tile to the address `weights`. Their sums are those
// of what was written: an error of rounding that all weights share leaves the output as it is.
__device__ __forceinline__ void weigh(float (&sums)[kOwn], const float (&exponents)[kHeld],
                                      u32 weights, u32 half) {
  const u32 lane = threadIdx.x % 32;
  float left[kOwn][2];  // of the weights of two keys of each column
#pragma unroll
  for (u32 i = 0; i < kHeld; ++i)
    left[i / 4 * 2 + i % 2][i / 2 % 2] = device::power_of_2(exponents[i]);
#pragma unroll
  for (u32 own = 0; own < kOwn; ++own) {
    sums[own] = 0;
#pragma unroll
    for (u32 term = 0; term < kTerms; ++term) {
      const u32 two = device::e4m3x2_of_floats(left[own][0], left[own][1]);
      const u32 rounded = device::f16x2_of_e4m3x2(two);
      const float first = device::float_of_f16(rounded);
      const float second = device::float_of_f16(rounded >> 16);
      sums[own] += (first + second) * (term == 0 ? 1 : 1 / kSecondScale);
      left[own][0] = (left[own][0] - first) * kSecondScale;
      left[own][1] = (left[own][1] - second) * kSecondScale;
      const u32 row = term * kColumns + column_of(own);
      device::store_shared_2(weights + row / 8 * 1024 +
                                 device::in_rows_of_128(row, half * 4 + threadIdx.x / 32 % 4) +
                                 lane / 4 * 2,
                             two);
    }
  }
}

// Takes in the values of both pages, of this warpgroup's dims. `next` starts `more` sums behind
// them.
template <class Products, u32 more, class Next>
__device__ __forceinline__ void add_values(Outputs& outputs, u32 weights, const u32 (&pages)[2],
                                           const Next& next) {
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32 % 4;
  const u32 half = threadIdx.x / 128;
  const u32 piece = half * 2 * kPartBytes + lane / 8 * 1024 + lane % 8 * 128;
  const auto load_step = [&](u32(&values)[4], u32 block, u32 step) {
    device::load_columns(values, pages[step / 2] + piece + block / 2 * kPartBytes +
                                     step % 2 * 4096 + ((block % 2 * 4 + warp) ^ lane % 8) * 16);
  };
  const auto load = [&](u32(&values)[4][4], u32 block) {
#pragma unroll
    for (u32 step = 0; step < 4; ++step) load_step(values[step], block, step);
  };
  if constexpr (Products::kGoesOn) {
    // While the matrix units are at a block, the next one's values come, and with few columns the
    // sums of the one before are added.
    constexpr u32 behind = kColumns <= 32 ? 1 : 0;
    u32 values[2][4][4];
    float sums[behind + 1][kTerms * kHeld];
    const auto take = [&](u32 block) {
#pragma unroll
      for (u32 i = 0; i < kTerms * kHeld; ++i)
        outputs.dims[block][i % kHeld] +=
            sums[block % (behind + 1)][i] * (i < kHeld ? 1 : 1 / kSecondScale);
    };
    load(values[0], 0);
#pragma unroll
    for (u32 block = 0; block < kDimBlocks; ++block) {
      Products::begin();
      Products::template columns_of_32<kTerms * kColumns, false>(
          sums[block % (behind + 1)], values[block % 2][0], Products::place(weights), 0);
#pragma unroll
      for (u32 step = 1; step < 4; ++step)
        Products::template columns_of_32<kTerms * kColumns, true>(
            sums[block % (behind + 1)], values[block % 2][step], Products::place(weights), step);
      Products::go();
      if (block + 1 == kDimBlocks) next();
      if constexpr (behind == 0) {
        if (block + 1 < kDimBlocks) {
          load(values[(block + 1) % 2], block + 1);
          Products::wait(sums[0]);
        } else {
          Products::template wait<more>(sums[0]);
        }
        take(block);
      } else {
        if (block != 0) {
          if (block + 1 == kDimBlocks)
            Products::template wait<behind + more>(sums[(block - 1) % (behind + 1)]);
          else
            Products::template wait<behind>(sums[(block - 1) % (behind + 1)]);
          take(block - 1);
        }
        if (block + 1 < kDimBlocks) load(values[(block + 1) % 2], block + 1);
      }
    }
    if constexpr (behind != 0) {
      Products::template wait<more>(sums[(kDimBlocks - 1) % (behind + 1)]);
      take(kDimBlocks - 1);
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kDimBlocks * 4; ++i) {
      u32 values[4];
      load_step(values, i / 4, i % 4);
      Products::template columns_of_32<kColumns, true>(outputs.dims[i / 4], values, weights, i % 4);
      if constexpr (kTerms == 2)
        Products::template columns_of_32_scaled<kColumns>(
            outputs.dims[i / 4], values, weights + kColumns * kTileKeys, i % 4, kOverSecondScale);
    }
    next();
  }
}

// Values behind the first `keys` of a page must be numbers as well. By a warpgroup.
__device__ __forceinline__ void clear_values(u32 page, int keys) {
  for (u32 i = threadIdx.x % 128; i < kParts * kPageKeys * 8; i += 128)
    if (static_cast<int>(i / 8 % kPageKeys) >= keys)
      device::store_shared_16(page + i * 16, 0, 0, 0, 0);
}

}  // namespace kiln::kernels::kimi_k3_mla::attend
