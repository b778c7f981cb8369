// Records on their way from the cache to a tile of bf16 in shared memory.
#pragma once

#include "kernel_src/device/tile_products.cuh"
#include "kernel_src/dsv41_decode/record_words.cuh"
#include "kernel_src/dsv41_decode/swapab_common.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

// Which of a record's eight elements ends up at place `i`. Fp8: 0, 2, 1, 3, 4, 6, 5, 7. Nvfp4: 0,
// 4, 1, 5, 2, 6, 3, 7.
template <Record record>
__device__ __forceinline__ u32 element_at(u32 i) {
  if constexpr (record == Record::fp8) return (i & 4u) | (i & 1u) << 1 | (i >> 1 & 1u);
  return i / 2 + i % 2 * 4;
}

// Gather: each warp brings its share of the tile's records, two rows at a time, the lanes with
// number & 4 the second one: so the pieces that eight lanes store lie in all banks.

// What a lane knows of the slot that it looked up: lanes that differ by the share look up the same.
struct Slot {
  int entry;
  int length;  // of the list
  int listed;
};

template <u32 tile, u32 width>
__device__ __forceinline__ Slot look_up(const CacheArgs& cache, u32 token, u32 first_slot, u32 warp,
                                        u32 lane) {
  constexpr u32 share = tile / kWarps;
  const u32 entry = first_slot + warp * share + lane % share;
  if (entry >= width) return {0, 0, -1};
  return {static_cast<int>(entry), cache.lengths[token],
          cache.slots[static_cast<u64>(token) * width + entry]};
}

// A slice of a record: a lane's 16 bytes, and their scales: one of 16 elements, or two.
struct Raw {
  Words4 words;
  u32 scales;
};

template <u32 tile, Record record>
struct Gathered {
  static constexpr u32 kRounds = record == Record::fp8 ? 2 : 1;  // 16 lanes by 16 bytes a round
  Raw raw[tile / kWarps / 2][kRounds];
};

template <u32 tile, Record record, u32 page_slots>
__device__ __forceinline__ Gathered<tile, record> gather(const CacheArgs& cache,
                                                         const Slot& looked_up, u32 warp,
                                                         u32 lane) {
  constexpr u32 share = tile / kWarps;
  // Unsigned: negative numbers are too large as well.
  const u64 slot = static_cast<u64>(static_cast<i64>(looked_up.listed));
  const bool valid = looked_up.entry < looked_up.length && slot < cache.cache_slots;
  const u64 from = reinterpret_cast<u64>(cache.base) + slot / page_slots * cache.page_stride_bytes +
                   slot % page_slots * cache.row_stride_bytes;
  if (lane < share) *shared_at<u8>(kAt.valid + warp * share + lane) = valid;
  const u32 mask = __ballot_sync(0xffffffffu, valid);
  using Result = Gathered<tile, record>;
  Result gathered;
#pragma unroll
  for (u32 pair = 0; pair < share / 2; ++pair) {
    const u32 which = 2 * pair + lane / 4 % 2;
    const u8* data = reinterpret_cast<const u8*>(__shfl_sync(0xffffffffu, from, which));
#pragma unroll
    for (u32 round = 0; round < Result::kRounds; ++round) {
      Raw& raw = gathered.raw[pair][round];
      raw = {{0, 0, 0, 0}, 0};
      if ((mask >> which & 1u) == 0) continue;
      const u32 slice = round * 16 + slice_of_lane(lane);
      raw.words = device::load_16_once(data + slice * 16);
      raw.scales = record == Record::fp8 ? device::load_1(data + 512 + slice / 2)
                                         : device::load_2(data + 256 + slice * 2);
    }
  }
  return gathered;
}

// A slot that is not to be read becomes a row of zeros.
template <u32 tile, Record record>
__device__ __forceinline__ void store_records(const Gathered<tile, record>& gathered, u32 warp,
                                              u32 lane) {
  constexpr u32 share = tile / kWarps;
#pragma unroll
  for (u32 pair = 0; pair < share / 2; ++pair) {
    const u32 row = warp * share + 2 * pair + lane / 4 % 2;
    const u32 eight_rows = kAt.records + row / 8 * 1024;
#pragma unroll
    for (u32 round = 0; round < Gathered<tile, record>::kRounds; ++round) {
      const Raw& raw = gathered.raw[pair][round];
      const u32 slice = round * 16 + slice_of_lane(lane);
      if constexpr (record == Record::fp8) {
        const u32 to = eight_rows + part_of_rows<tile>(slice / 4);
        const u32 factor = factor_of_scale<record>(raw.scales);
        const u32 piece = slice % 4 * 2;
        store_shared_16(to + device::in_eight_rows(row, piece),
                        eight_of_e4m3(raw.words.x, raw.words.y, factor));
        store_shared_16(to + device::in_eight_rows(row, piece + 1),
                        eight_of_e4m3(raw.words.z, raw.words.w, factor));
      } else {
        const u32 to = eight_rows + part_of_rows<tile>(slice / 2);
        const u32 factor_0 = factor_of_scale<record>(raw.scales & 0xffu);
        const u32 factor_1 = factor_of_scale<record>(raw.scales >> 8);
        // Every other two lanes begin with the second half, for the sake of the banks.
        const bool swapped = slice & 2u;
        const u32 piece = slice % 2 * 4 + (swapped ? 2 : 0);
        const u32 first[2] = {swapped ? raw.words.z : raw.words.x,
                              swapped ? raw.words.w : raw.words.y};
        const u32 second[2] = {swapped ? raw.words.x : raw.words.z,
                               swapped ? raw.words.y : raw.words.w};
        const u32 factor_of_first = swapped ? factor_1 : factor_0;
        const u32 factor_of_second = swapped ? factor_0 : factor_1;
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
          store_shared_16(to + device::in_eight_rows(row, piece + i),
                          eight_of_e2m1(first[i], factor_of_first));
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
          store_shared_16(to + device::in_eight_rows(row, (piece ^ 2) + i),
                          eight_of_e2m1(second[i], factor_of_second));
      }
    }
  }
}

}  // namespace kiln::kernels::dsv41_decode::swapab
