// What the blocks of a cluster send each other, and the token's output made of it.
//
// Partial outputs travel as f16 with a factor for 32 elements of a head, which takes little more
// than half the time of floats. The factor is known before them, from a bound: the sum over the
// tile's slots of P times what the record's 32 elements are below. What other heads see plays no
// part. So each is off by at most 2^-11 of itself, or 2^-39 of that sum, of which P as two terms is
// off by 2^-17.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/device/ptx_mma.cuh"
#include "kernel_src/dsv41_decode/output.cuh"
#include "kernel_src/dsv41_decode/swapab_products.cuh"
#include "kernel_src/dsv41_decode/swapab_records.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

// Parcel p, elements p % 16 * 32 and on of heads p / 16 * 16 and on, is finished by block p %
// tiles. Half of it, 16 elements, is one warp's.
constexpr u32 kParcels = parcels(kHeads);
constexpr u32 kHeadPairs = kHeads / 16;  // of eight heads and the next eight

// Barriers, in bytes from the first: all partial outputs that are sent here; leave to send to any
// block; all tiles' maxima, sums and factors; this tile's factors.
constexpr u32 kArrived = 0, kLeave = 8, kSummed = 16, kFactored = 24;

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

// A lane's k, of its elements and their neighbours: see send_half().
template <Record order>
__device__ __forceinline__ u32 pairs_of(u32 lane) {
  return element_at<order>(lane / 4 & ~2u) / 2;
}

// A power of two that brings magnitudes of an exponent into [2^14, 2^15), where f16's range ends.
// Of the smallest it leaves them below, so that its inverse is normal.
__device__ __forceinline__ float factor_of(float magnitude) {
  constexpr u32 least = 15;
  constexpr u32 most = 254;  // infinity's is larger
  u32 exponent = bits_of(magnitude) >> 23 & 0xffu;
  exponent = exponent < least ? least : exponent > most ? most : exponent;
  return float_of((127 + 14 + 127 - exponent) << 23);
}
__device__ __forceinline__ float inverse_of(float factor) {
  return float_of((254u << 23) - bits_of(factor));
}

// The factors of 16 heads' partial outputs, by a warp: of block g of 32 elements and of block g +
// 8, g = lane / 4, those of heads 2 t, 2 t + 8, 2 t + 1, 2 t + 9, t = lane % 4.
struct Factors {
  float of[2][4];
};

template <class T>
__device__ __forceinline__ Factors factors_of(u32 pair, u32 lane) {
  float bounds[2][4] = {};
#pragma unroll
  for (u32 step = 0; step < T::tile / 16; ++step) {
    // Matrices: blocks 0 to 7, blocks 8 to 15, then the same of the next 8 slots.
    u32 ceilings[4];
    device::load_matrices(ceilings, shared_base() + T::at.ceilings +
                                        lane % 16 * ceiling_row_bytes(T::tile) + step * 32 +
                                        lane / 16 * 16);
    // Matrices: eight heads, the same of the next 8 slots, then the next heads. High terms alone.
    u32 weights[4];
    device::load_matrices(weights, shared_base() + T::at.weights +
                                       step / 4 * weight_part_bytes(kHeads) +
                                       (pair * 2 + lane / 16) * 1024 +
                                       device::in_eight_rows(lane, step % 4 * 2 + lane / 8 % 2));
    device::mma_bf16_16x8x16(bounds[0], ceilings, weights[0], weights[1]);
    device::mma_bf16_16x8x16(bounds[1], ceilings, weights[2], weights[3]);
  }
  Factors factors;
#pragma unroll
  for (u32 i = 0; i < 8; ++i)
    factors.of[i / 4][i % 4] = factor_of(bounds[i % 2][i / 4 * 2 + i / 2 % 2]);
  return factors;
}

// Where a parcel's factors of heads h and h + 8 lie, from its first ones.
__device__ __forceinline__ u32 in_factors(u32 head) {
  return head % 8 * 8;
}

// For the warps of this block.
template <class T>
__device__ __forceinline__ void store_factors(const Factors& factors, u32 pair, u32 lane) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const float(&of)[4] = factors.of[i];
    const u32 parcel = pair * kUnitBlocks + i * 8 + lane / 4;
    store_shared_16(T::at.factors + parcel * kFactorBytes + in_factors(lane % 4 * 2),
                    {bits_of(of[0]), bits_of(of[1]), bits_of(of[2]), bits_of(of[3])});
  }
}

// And for the blocks that finish them.
template <class T>
__device__ __forceinline__ void send_inverses(const Factors& factors, u32 pair, u32 lane,
                                              u32 rank) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const float(&of)[4] = factors.of[i];
    const u32 parcel = pair * kUnitBlocks + i * 8 + lane / 4;
    const u32 peer = device::address_in_block(shared_base(), parcel % T::tiles);
    device::send_16(peer + T::at.inverses + place_of<T::tiles>(rank, parcel) * kFactorBytes +
                        in_factors(lane % 4 * 2),
                    inverse_of(of[0]), inverse_of(of[1]), inverse_of(of[2]), inverse_of(of[3]),
                    peer + T::at.barriers + kSummed);
  }
}

// Sums of 64 elements: `m` says which of the warpgroup's 128. A lane has two elements of each of
// two heads of eight, and of the heads 8 further on. The lane whose elements are theirs' neighbours
// takes one head of two and gives the other, so that each sends 16 bytes; four lanes have all
// elements of a head in half a parcel. `k`: see in_parcel().
template <class T>
__device__ __forceinline__ void send_half(const float (&sums)[kOutputColumns / 2], u32 m, u32 k,
                                          u32 warp, u32 lane, u32 rank) {
  const bool odd = lane & 8u;  // are its elements and its head
  const u32 head = lane % 4 * 2 + odd;
  const u32 first_halves = odd ? 0x1054 : 0x5410;
  const u32 second_halves = odd ? 0x3276 : 0x7632;
#pragma unroll
  for (u32 pair = 0; pair < kHeadPairs; ++pair) {
    // Two parcels have 64 elements; two warps have one.
    const u32 parcel = pair * kUnitBlocks + warp / 4 * 4 + m * 2 + warp % 4 / 2;
    const u32 peer = device::address_in_block(shared_base(), parcel % T::tiles);
    const Words4 factors =
        load_shared_16(T::at.factors + parcel * kFactorBytes + in_factors(lane % 4 * 2));
    const float of_even[2] = {float_of(factors.x), float_of(factors.y)};
    const float of_odd[2] = {float_of(factors.z), float_of(factors.w)};
    float words[4];  // of the head, and of the head 8 further on
#pragma unroll
    for (u32 n = 0; n < 2; ++n) {
      const u32 i = 8 * pair + 4 * n;
      float outputs[4];
#pragma unroll
      for (u32 j = 0; j < 4; ++j)
        outputs[j] = (sums[i + j] + sums[kHeads / 2 + i + j]) * (j % 2 ? of_odd[n] : of_even[n]);
      const u32 even_head = device::f16x2_of_floats(outputs[0], outputs[2]);
      const u32 odd_head = device::f16x2_of_floats(outputs[1], outputs[3]);
      const u32 kept = odd ? odd_head : even_head;
      const u32 got = device::from_lane_across(odd ? even_head : odd_head, 8);
      words[2 * n] = float_of(device::pick_bytes(kept, got, first_halves));
      words[2 * n + 1] = float_of(device::pick_bytes(kept, got, second_halves));
    }
    device::send_16(peer + T::at.landed + place_of<T::tiles>(rank, parcel) * kParcelBytes +
                        in_parcel(head, warp % 2, k),
                    words[0], words[1], words[2], words[3], peer + T::at.barriers + kArrived);
  }
}

// The first half travels while the second is multiplied.
template <class Products, class T>
__device__ __forceinline__ void send_outputs(OutputSums& sums, u32 k, u32 warp, u32 lane,
                                             u32 rank) {
  Products::template end_all_but<1>(sums[0]);
  send_half<T>(sums[0], 0, k, warp, lane, rank);
  Products::template end_all_but<0>(sums[1]);
  send_half<T>(sums[1], 1, k, warp, lane, rank);
}

// Tells all blocks the tile's maximum and sum.
template <class T>
__device__ __forceinline__ void send_sums(const Softmax& of_head, u32 head, u32 lane, u32 rank) {
  float sum = of_head.sum;
#pragma unroll
  for (u32 across = 1; across < lanes_of_head<T>(); across *= 2)
    sum += float_of(device::from_lane_across(bits_of(sum), across));
  const u32 to = lane % lanes_of_head<T>();
  if (to < T::tiles) {
    const u32 peer = device::address_in_block(shared_base(), to);
    device::send_8(peer + T::at.sums + (rank * kHeads + head) * 8, of_head.maximum, sum,
                   peer + T::at.barriers + kSummed);
  }
}

// A lane finishes eight elements of a unit: four, and the four from 8 further on.
constexpr u32 kGap = 8;

__device__ __forceinline__ OutputShare share_of(const Args& args, u64 position, u32 unit) {
  return output_share<kGap>(args, position, unit, threadIdx.x % 4 / 2 * 16 + threadIdx.x % 2 * 4);
}

// What f16 1 of each tile's partial outputs counts for in a head's.
template <u32 tiles>
struct TileWeights {
  float of_tile[tiles];
};

// Eight heads of a unit, and its parcel.
__device__ __forceinline__ u32 heads_of(const OutputShare& share) {
  return share.unit / kUnitBlocks;
}
__device__ __forceinline__ u32 parcel_of(const OutputShare& share) {
  return heads_of(share) / 2 * kUnitBlocks + share.unit % kUnitBlocks;
}

template <class T>
__device__ __forceinline__ TileWeights<T::tiles> tile_weights(const OutputShare& share) {
  constexpr u32 tiles = T::tiles;
  Floats2 sums[tiles];
  float maximum = float_of(0xff800000u);
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    sums[tile] = *shared_at<const Floats2>(T::at.sums + (tile * kHeads + share.head) * 8);
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
  for (u32 tile = 0; tile < tiles; ++tile)
    weights.of_tile[tile] *=
        factor * *shared_at<const float>(T::at.inverses +
                                         place_of<tiles>(tile, parcel_of(share)) * kFactorBytes +
                                         in_factors(share.head) + heads_of(share) % 2 * 4);
  return weights;
}

// Where a lane's partial outputs of the first tile land: two pieces. Those of the next tile lie a
// constant further on.
struct Landed {
  u32 pieces[2];
};

template <class T>
__device__ __forceinline__ Landed where_landed(const OutputShare& share, u32 lane) {
  const u32 half = share.first / 16;
  const u32 k = share.first % 16 / 2;
  const u32 from = shared_base() + T::at.landed +
                   place_of<T::tiles>(0, parcel_of(share)) * kParcelBytes + heads_of(share) % 2 * 8;
  return {device::worked_out(from + in_parcel(share.head, half, k), lane),
          device::worked_out(from + in_parcel(share.head, half, k + 1), lane)};
}

template <class T>
__device__ __forceinline__ void finish(const Args& args, const OutputShare& share,
                                       const TileWeights<T::tiles>& weights, const Landed& landed,
                                       u32 token, bool wanted, u32 lane) {
  constexpr u32 tiles = T::tiles;
  float values[8] = {};
#pragma unroll
  for (u32 tile = 0; tile < tiles; ++tile) {
    const u32 further = place_of<tiles>(tile, 0) * kParcelBytes;
    u32 words[4];
    device::load_shared_8(landed.pieces[0] + further, words[0], words[2]);
    device::load_shared_8(landed.pieces[1] + further, words[1], words[3]);
#pragma unroll
    for (u32 j = 0; j < 8; ++j)
      values[j] = fused_multiply_add(weights.of_tile[tile],
                                     device::float_of_f16(words[j / 2] >> j % 2 * 16), values[j]);
  }
  write_output<kGap>(args, share, values, token, wanted, lane);
}

}  // namespace kiln::kernels::dsv41_decode::swapab
