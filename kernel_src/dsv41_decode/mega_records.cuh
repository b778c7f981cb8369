// The warpgroups that bring records: from the caches to tiles of bf16 in shared memory.
//
// A warp has 8 slots of a tile, in two halves of 4. While a half's records are converted those of
// the next tile are on their way, and the list's entries for the one after it.
#pragma once

#include "kernel_src/device/ptx_grid_dependency.cuh"
#include "kernel_src/device/tile_products.cuh"
#include "kernel_src/dsv41_decode/mega_common.cuh"
#include "kernel_src/dsv41_decode/record_words.cuh"

namespace kiln::kernels::dsv41_decode::mega {

constexpr u32 kProducerWarps = kProducerThreads / 32;
constexpr u32 kHalfSlots = kTile / 2 / kProducerWarps;  // of a warp
static_assert(kHalfSlots == 4);

// Two records at a time: lanes with number & 4 have the second one. Fp8 takes two rounds. Scales
// are dealt out on their own, a word to a lane, so that they take few registers.
struct Half {
  Words4 raw[kHalfSlots / 2][2];
  u32 scales;
  u32 valid;  // a bit a slot
};

__device__ __forceinline__ u32 slice_of_lane(u32 lane) {
  return lane / 8 * 4 + lane % 4;
}

template <Record record>
constexpr u32 kRounds = record == Record::fp8 ? 2 : 1;  // of 16 lanes by 16 bytes

// What the list says of slot `lane` % 4 of a half, whether it counts or not.
template <u32 width>
__device__ __forceinline__ int look_up(const CacheArgs& cache, u32 token, u32 first_slot,
                                       u32 lane) {
  const u32 entry = first_slot + lane % kHalfSlots;
  if (width % kTile != 0 && entry >= width) return -1;
  return cache.slots[static_cast<u64>(token) * width + entry];
}

template <Record record, u32 page_slots>
__device__ __forceinline__ void load(Half& half, const CacheArgs& cache, bool counts, int listed,
                                     u32 lane) {
  // Unsigned: negative numbers are too large as well.
  const u64 slot = static_cast<u64>(static_cast<i64>(listed));
  const bool valid = counts && slot < cache.cache_slots;
  const u64 from = reinterpret_cast<u64>(cache.base) + slot / page_slots * cache.page_stride_bytes +
                   slot % page_slots * cache.row_stride_bytes;
  half.valid = __ballot_sync(0xffffffffu, valid);
#pragma unroll
  for (u32 pair = 0; pair < kHalfSlots / 2; ++pair) {
    const u32 which = 2 * pair + lane / 4 % 2;
    const u8* data = reinterpret_cast<const u8*>(__shfl_sync(0xffffffffu, from, which));
#pragma unroll
    for (u32 round = 0; round < kRounds<record>; ++round) {
      half.raw[pair][round] = {0, 0, 0, 0};
      if (half.valid >> which & 1u)
        half.raw[pair][round] =
            device::load_16_once(data + (round * 16 + slice_of_lane(lane)) * 16);
    }
  }
  // Of fp8 records the lanes from 16 on read the same again.
  constexpr u32 words = record == Record::fp8 ? 4 : 8;
  const u32 which = lane / words % kHalfSlots;
  const u8* data = reinterpret_cast<const u8*>(__shfl_sync(0xffffffffu, from, which));
  half.scales = 0;
  if (half.valid >> which & 1u)
    half.scales = device::load_4(data + dsv41::data_bytes(record) + lane % words * 4);
}

// Both records in one order: 0, 4, 1, 5, 2, 6, 3, 7.
__device__ __forceinline__ Words4 eight_of_fp8(u32 word_0, u32 word_1, u32 factor) {
  return eight_of_e4m3(__byte_perm(word_0, word_1, 0x5410), __byte_perm(word_0, word_1, 0x7632),
                       factor);
}

// A slot that is not to be read becomes a row of zeros. `rows`: where the tile lies.
template <Record record>
__device__ __forceinline__ void store(const Half& half, u32 rows, u32 first_row, u32 lane) {
  const u32 eight_rows = rows + first_row / 8 * 1024;  // four of them are the half's
#pragma unroll
  for (u32 pair = 0; pair < kHalfSlots / 2; ++pair) {
    const u32 row = first_row % 8 + 2 * pair + lane / 4 % 2;
#pragma unroll
    for (u32 round = 0; round < kRounds<record>; ++round) {
      const Words4& raw = half.raw[pair][round];
      const u32 slice = round * 16 + slice_of_lane(lane);
      const u32 which = 2 * pair + lane / 4 % 2;
      if constexpr (record == Record::fp8) {
        const u32 scales = __shfl_sync(0xffffffffu, half.scales, which * 4 + slice / 8);
        const u32 factor = factor_of_scale<record>(scales >> slice / 2 % 4 * 8 & 0xffu);
        const u32 to = eight_rows + slice / 4 * kPartBytes;
        const u32 piece = slice % 4 * 2;
        store_shared_16(to + device::in_eight_rows(row, piece), eight_of_fp8(raw.x, raw.y, factor));
        store_shared_16(to + device::in_eight_rows(row, piece + 1),
                        eight_of_fp8(raw.z, raw.w, factor));
      } else {
        const u32 scales =
            __shfl_sync(0xffffffffu, half.scales, which * 8 + slice / 2) >> slice % 2 * 16;
        const u32 factors[2] = {factor_of_scale<record>(scales & 0xffu),
                                factor_of_scale<record>(scales >> 8 & 0xffu)};
        const u32 to = eight_rows + slice / 2 * kPartBytes;
        const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
          store_shared_16(to + device::in_eight_rows(row, slice % 2 * 4 + i),
                          eight_of_e2m1(words[i], factors[i / 2]));
      }
    }
  }
}

// What the warp does for one tile; `first_row` is of the half in it.
struct Source {
  const Args& args;
  Lengths lengths;
  u32 token;
  u32 lane;

  __device__ __forceinline__ bool of_swa(u32 tile) const {
    return kCompressedSlots == 0 || tile < kSwaTiles;
  }
  // The list's entry of the lane's slot; not looked at before it is needed.
  __device__ __forceinline__ int listed(u32 tile, u32 first_row) const {
    if (tile >= kAllTiles) return -1;
    if (of_swa(tile)) return look_up<kSwaSlots>(args.swa, token, tile * kTile + first_row, lane);
    return look_up<kCompressedSlots>(args.compressed, token, (tile - kSwaTiles) * kTile + first_row,
                                     lane);
  }
  __device__ __forceinline__ void bring(Half& half, u32 tile, u32 first_row, int entry) const {
    if (tile >= kAllTiles) return;
    const int slot = static_cast<int>(first_row + lane % kHalfSlots);
    if (of_swa(tile)) {
      load<Record::fp8, key::swa_page_slots>(
          half, args.swa, static_cast<int>(tile * kTile) + slot < lengths.swa, entry, lane);
    } else if constexpr (kCompressedSlots != 0) {
      load<kRecord, key::page_slots>(
          half, args.compressed,
          static_cast<int>((tile - kSwaTiles) * kTile) + slot < lengths.compressed, entry, lane);
    }
  }
  __device__ __forceinline__ void put(const Half& half, u32 tile, u32 buffer, u32 first_row) const {
    if (lane < kHalfSlots)
      *shared_at<u8>(At::valid + buffer * kTile + first_row + lane) = half.valid >> lane & 1u;
    const u32 rows = At::records + buffer * kTileBytes;
    if (kRecord == Record::fp8 || of_swa(tile)) {
      store<Record::fp8>(half, rows, first_row, lane);
    } else {
      store<kRecord>(half, rows, first_row, lane);
    }
  }
};

template <class Products>
__device__ __forceinline__ void produce(const Args& args, u32 token, u32 rank,
                                        const Blocks& blocks) {
  const u32 warp = threadIdx.x / 32 % kProducerWarps;
  const Lengths lengths = lengths_of(args, token);
  Source source{args, lengths, token, threadIdx.x % 32};
  const u32 row[2] = {warp * (2 * kHalfSlots), warp * (2 * kHalfSlots) + kHalfSlots};
  // The entries of the first tile do not wait for the lengths to tell whether it is listed.
  int entries[2] = {source.listed(rank, row[0]), source.listed(rank, row[1])};
  u32 tile = lengths.from(rank, blocks);
  if (tile >= kAllTiles) return;
  Half halves[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    if (tile != rank) entries[i] = source.listed(tile, row[i]);
    source.bring(halves[i], tile, row[i], entries[i]);
  }
  u32 next = lengths.from(tile + blocks.count, blocks);
#pragma unroll
  for (u32 i = 0; i < 2; ++i) entries[i] = source.listed(next, row[i]);
  for (u32 round = 0; tile < kAllTiles; ++round) {
    const u32 buffer = round % kTiles;
    const u32 after_next = lengths.from(next + blocks.count, blocks);
    // Worked out anew each time, what depends on the lane takes no registers in between.
    asm volatile("" : "+r"(source.lane));
    if (round >= kTiles)
      while (!device::barrier_try_wait(barrier_at(kEmpty + buffer * 8), (round / kTiles - 1) % 2)) {
      }
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      source.put(halves[i], tile, buffer, row[i]);
      source.bring(halves[i], next, row[i], entries[i]);
      entries[i] = source.listed(after_next, row[i]);
    }
    Products::publish();
    device::barrier_arrive(barrier_at(kFull + buffer * 8));
    tile = next;
    next = after_next;
  }
}

}  // namespace kiln::kernels::dsv41_decode::mega
