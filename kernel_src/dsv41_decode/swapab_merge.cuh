// What the blocks of a cluster send each other, and the token's output made of it.
//
// Partial outputs travel as f16 with a factor for 16 elements of a head, which takes little more
// than half the time of floats: each is off by at most 2^-11 of itself, or 2^-39 of the largest of
// the 16. An eighth of what P is off by as one bf16 term.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/dsv41_decode/output.cuh"
#include "kernel_src/dsv41_decode/swapab_products.cuh"
#include "kernel_src/dsv41_decode/swapab_records.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

// Parcel p, elements p % 16 * 32 and on of heads p / 16 * 16 and on, is finished by block p %
// tiles. Half of it, 16 elements, is one warp's.
constexpr u32 kParcels = parcels(kHeads);

template <u32 tiles>
__device__ __forceinline__ constexpr u32 parcels_of(u32 rank) {
  return (kParcels - rank + tiles - 1) / tiles;
}

// Unit number `index` of those that the block finishes; kUnits: it has fewer.
template <u32 tiles>
__device__ __forceinline__ u32 unit_of(u32 index, u32 rank) {
  const u32 parcel = index / 2 * tiles + rank;
  if (parcel >= kParcels) return kUnits;
  return (parcel / kUnitBlocks * 2 + index % 2) * kUnitBlocks + parcel % kUnitBlocks;
}

// A parcel's place among those that land in its block, of the tile of block `rank`.
template <u32 tiles>
__device__ __forceinline__ u32 place_of(u32 rank, u32 parcel) {
  return rank * most_parcels(kHeads, tiles) + parcel / tiles;
}

// Elements `half` * 16 + 2 k, the next one, and the two from 8 further on, k below 4, of a head and
// then of the head 8 further on. They change places by head, so that lanes use all banks.
__device__ __forceinline__ u32 in_parcel(u32 head, u32 half, u32 k) {
  return head % 8 * 128 + ((half * 4 + k) ^ head % 8) * 16;
}

// Where a head's factor in half a parcel lies, before that of the head 8 further on.
__device__ __forceinline__ u32 factor_at(u32 place, u32 half, u32 head) {
  return place * kFactorBytes + (half * 8 + head % 8) * 8;
}

// A power of two that brings magnitudes of an exponent into [2^14, 2^15), where f16's range ends,
// and its inverse. The smallest magnitudes stay below.
struct Scale {
  float factor;
  float inverse;
};

__device__ __forceinline__ Scale scale_of(u32 exponent) {
  constexpr u32 least = 15;  // so that the inverse is normal
  constexpr u32 most = 254;  // infinity's is larger
  exponent = exponent < least ? least : exponent > most ? most : exponent;
  return {float_of((127 + 14 + 127 - exponent) << 23), float_of((exponent - 14) << 23)};
}

// Sums of 64 elements: `m` says which of the warpgroup's 128. A lane has two elements of each of
// two heads of eight. The lane whose elements are theirs' neighbours takes one head and gives the
// other, so that each sends 16 bytes; four lanes have all elements of a head in half a parcel.
template <Record record, u32 tiles>
__device__ __forceinline__ void send_half(const float (&sums)[kOutputColumns / 2], u32 m, u32 warp,
                                          u32 lane, u32 rank) {
  const u32 g = lane / 4;
  const u32 k = element_at<record>(g & ~2u) / 2;
  const bool odd = g & 2u;  // are its elements and its head
  const u32 head = lane % 4 * 2 + odd;
#pragma unroll
  for (u32 pair = 0; pair < kHeadTiles / 2; ++pair) {
    // Two parcels have 64 elements; two warps have one.
    const u32 parcel = pair * kUnitBlocks + warp / 4 * 4 + m * 2 + warp % 4 / 2;
    const u32 peer = device::address_in_block(shared_base(), parcel % tiles);
    const u32 place = place_of<tiles>(rank, parcel);
    float own[2][4];  // of the head, and of the head 8 further on
    u32 exponents = 0;
#pragma unroll
    for (u32 n = 0; n < 2; ++n) {
      float largest = 0.0f;  // of what is no NaN
#pragma unroll
      for (u32 row = 0; row < 2; ++row) {
        const u32 i = 8 * pair + 4 * n + 2 * row;
        const float even_head = sums[i] + sums[kHeads / 2 + i];
        const float odd_head = sums[i + 1] + sums[kHeads / 2 + i + 1];
        const float kept = odd ? odd_head : even_head;
        const float got =
            float_of(device::from_lane_across(bits_of(odd ? even_head : odd_head), 8));
        own[n][2 * row] = odd ? got : kept;
        own[n][2 * row + 1] = odd ? kept : got;
        largest = device::larger(largest, float_of(magnitude_bits(kept)));
        largest = device::larger(largest, float_of(magnitude_bits(got)));
      }
      exponents |= bits_of(largest) >> 23 << 16 * n;
    }
#pragma unroll
    for (u32 across = 4; across <= 16; across *= 4)
      exponents = device::larger_u16x2(exponents, device::from_lane_across(exponents, across));
    const Scale scales[2] = {scale_of(exponents & 0xffffu), scale_of(exponents >> 16)};
    float words[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const float* two = own[i / 2] + i % 2 * 2;
      const float factor = scales[i / 2].factor;
      words[i] = float_of(device::f16x2_of_floats(two[0] * factor, two[1] * factor));
    }
    device::send_16(peer + kAt.landed + place * kParcelBytes + in_parcel(head, warp % 2, k),
                    words[0], words[1], words[2], words[3], peer + kAt.barriers);
    if ((lane & 20u) == 0)  // one of the four
      device::send_8(peer + kAt.factors + factor_at(place, warp % 2, head), scales[0].inverse,
                     scales[1].inverse, peer + kAt.barriers);
  }
}

// The first half travels while the second is multiplied.
template <class Products, Record record, u32 tiles>
__device__ __forceinline__ void send_outputs(OutputSums& sums, u32 warp, u32 lane, u32 rank) {
  Products::template end_all_but<1>(sums[0]);
  send_half<record, tiles>(sums[0], 0, warp, lane, rank);
  Products::template end_all_but<0>(sums[1]);
  send_half<record, tiles>(sums[1], 1, warp, lane, rank);
}

// Tells all blocks the tile's maximum and sum.
template <u32 tiles>
__device__ __forceinline__ void send_sums(const Softmax& of_head, u32 head, u32 lane, u32 rank) {
  float sum = of_head.sum;
#pragma unroll
  for (u32 across = 1; across < 32; across *= 2)
    sum += float_of(device::from_lane_across(bits_of(sum), across));
  if (lane < tiles) {
    const u32 peer = device::address_in_block(shared_base(), lane);
    device::send_8(peer + kAt.sums + (rank * kHeads + head) * 8, of_head.maximum, sum,
                   peer + kAt.barriers + 16);
  }
}

// A lane finishes eight elements of a unit: four, and the four from 8 further on.
constexpr u32 kGap = 8;

__device__ __forceinline__ OutputShare share_of(const Args& args, u64 position, u32 unit) {
  return output_share<kGap>(args, position, unit, threadIdx.x % 4 / 2 * 16 + threadIdx.x % 2 * 4);
}

// What each tile's partial outputs count for in a head's.
template <u32 tiles>
struct TileWeights {
  float of_tile[tiles];
};

template <u32 tiles>
__device__ __forceinline__ TileWeights<tiles> tile_weights(const OutputShare& share) {
  Floats2 sums[tiles];
  float maximum = float_of(0xff800000u);
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    sums[tile] = *shared_at<const Floats2>(kAt.sums + (tile * kHeads + share.head) * 8);
    maximum = device::larger(maximum, sums[tile].x);
  }
  if (maximum == float_of(0xff800000u)) maximum = 0.0f;
  TileWeights<tiles> weights;
  float total = 0.0f;
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    weights.of_tile[tile] = device::power_of_2(sums[tile].x - maximum);
    total = fused_multiply_add(weights.of_tile[tile], sums[tile].y, total);
  }
  total += device::power_of_2(fused_multiply_add(share.sink, kLog2E, -maximum));
  // No slot: all is 0, whatever the sink. With one, the largest p is 1.
  const float factor = total < 0.5f ? 0.0f : kUnshift / total;
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) weights.of_tile[tile] *= factor;
  return weights;
}

template <u32 tiles>
__device__ __forceinline__ void finish(const Args& args, const OutputShare& share,
                                       const TileWeights<tiles>& weights, u32 token, bool wanted,
                                       u32 lane) {
  const u32 half = share.first / 16;
  const u32 k = share.first % 16 / 2;
  const u32 heads = share.unit / kUnitBlocks;  // eight of them
  const u32 parcel = heads / 2 * kUnitBlocks + share.unit % kUnitBlocks;
  float values[8] = {};
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    const u32 place = place_of<tiles>(tile, parcel);
    const u32 from = kAt.landed + place * kParcelBytes + heads % 2 * 8;
    const Words2 a = *shared_at<const Words2>(from + in_parcel(share.head, half, k));
    const Words2 b = *shared_at<const Words2>(from + in_parcel(share.head, half, k + 1));
    const u32 words[4] = {a.x, b.x, a.y, b.y};
    const float factor =
        *shared_at<const float>(kAt.factors + factor_at(place, half, share.head) + heads % 2 * 4);
    const float weight = weights.of_tile[tile] * factor;
#pragma unroll
    for (u32 j = 0; j < 8; ++j)
      values[j] =
          fused_multiply_add(weight, device::float_of_f16(words[j / 2] >> j % 2 * 16), values[j]);
  }
  write_output<kGap>(args, share, values, token, wanted, lane);
}

}  // namespace kiln::kernels::dsv41_decode::swapab
