// The warpgroups that bring records: from the caches to tiles of bf16 in shared memory.
//
// A warp has 8 slots of a tile, in two halves of 4. While a half's records are converted those of
// the next tile are on their way, and the list's entries for the one after it.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/device/ptx_warp.cuh"
#include "kernel_src/device/tile_products.cuh"
#include "kernel_src/dsv41_decode/mega_common.cuh"
#include "kernel_src/dsv41_decode/record_words.cuh"

namespace kiln::kernels::dsv41_decode::mega {

constexpr u32 kProducerWarps = kProducerThreads / 32;
constexpr u32 kWarpSlots = kTile / kProducerWarps;
constexpr u32 kHalfSlots = kWarpSlots / 2;
static_assert(kWarpSlots == 8, "a warp fills eight rows of a tile");

// Two records at a time: lanes with number & 4 have the second one. Fp8 takes two rounds. Scales
// are dealt out on their own, a word to a lane, so that they take few registers.
struct Half {
  Words4 raw[kHalfSlots / 2][2];
  u32 scales;
};

template <Record record>
constexpr u32 kRounds = record == Record::fp8 ? 2 : 1;  // of 16 lanes by 16 bytes

// What a list has for its slot `entry`, whether it counts or not.
template <u32 width>
__device__ __forceinline__ int look_up(const CacheArgs& cache, u32 token, u32 entry) {
  if (width % kTile != 0 && entry >= width) return -1;
  return cache.slots[static_cast<u64>(token) * width + entry];
}

__device__ constexpr u32 log2_of(u32 power) {
  u32 log2 = 0;
  while (power >> log2 > 1) ++log2;
  return log2;
}

// `listed`: of the lane's slot, lane % 8; negative: not to be read. Half `index` of them, of either
// record: one copy of this code for both takes fewer registers.
__device__ __forceinline__ void load(Half& half, const CacheArgs& cache, bool fp8, u32 page_log2,
                                     int listed, u32 index) {
  const u32 lane = device::lane_anew();
  // Unsigned: negative numbers are too large as well.
  const u64 slot = static_cast<u64>(static_cast<i64>(listed));
  const bool valid = slot < cache.cache_slots;
  const u32 page = static_cast<u32>(listed) >> page_log2;
  const u32 in_page = static_cast<u32>(listed) & ((1u << page_log2) - 1);
  const u64 from = reinterpret_cast<u64>(cache.base) + page * cache.page_stride_bytes +
                   in_page * cache.row_stride_bytes;
  const u32 mask = __ballot_sync(0xffffffffu, valid);
#pragma unroll
  for (u32 pair = 0; pair < kHalfSlots / 2; ++pair) {
    const u32 which = index * kHalfSlots + 2 * pair + lane / 4 % 2;
    const u8* data = reinterpret_cast<const u8*>(__shfl_sync(0xffffffffu, from, which));
#pragma unroll
    for (u32 round = 0; round < 2; ++round) {
      half.raw[pair][round] = {0, 0, 0, 0};
      if ((round == 0 || fp8) && (mask >> which & 1u))
        half.raw[pair][round] =
            device::load_16_once(data + (round * 16 + slice_of_lane(lane)) * 16);
    }
  }
  // Of fp8 records the lanes from 16 on read the same again.
  const u32 words = fp8 ? 4 : 8;
  const u32 which = index * kHalfSlots + (fp8 ? lane / 4 : lane / 8) % kHalfSlots;
  const u8* data = reinterpret_cast<const u8*>(__shfl_sync(0xffffffffu, from, which));
  half.scales = 0;
  if (mask >> which & 1u)
    half.scales = device::load_4(data + dsv41::data_bytes(fp8 ? Record::fp8 : Record::nvfp4) +
                                 lane % words * 4);
}

// Both records in one order: 0, 4, 1, 5, 2, 6, 3, 7.
__device__ __forceinline__ Words4 eight_of_fp8(u32 word_0, u32 word_1, u32 factor) {
  return eight_of_e4m3(__byte_perm(word_0, word_1, 0x5410), __byte_perm(word_0, word_1, 0x7632),
                       factor);
}

// A slot that is not to be read becomes a row of zeros. `rows`: where the warp's eight lie.
template <Record record>
__device__ __forceinline__ void store(const Half& half, u32 rows, u32 index) {
  const u32 lane = device::lane_anew();
#pragma unroll
  for (u32 pair = 0; pair < kHalfSlots / 2; ++pair) {
    const u32 row = index * kHalfSlots + 2 * pair + lane / 4 % 2;
#pragma unroll
    for (u32 round = 0; round < kRounds<record>; ++round) {
      const Words4& raw = half.raw[pair][round];
      const u32 slice = round * 16 + slice_of_lane(lane);
      const u32 which = 2 * pair + lane / 4 % 2;
      if constexpr (record == Record::fp8) {
        const u32 scales = __shfl_sync(0xffffffffu, half.scales, which * 4 + slice / 8);
        const u32 factor = factor_of_scale<record>(scales >> slice / 2 % 4 * 8 & 0xffu);
        const u32 to = rows + slice / 4 * kPartBytes;
        const u32 piece = slice % 4 * 2;
        store_shared_16(to + device::in_eight_rows(row, piece), eight_of_fp8(raw.x, raw.y, factor));
        store_shared_16(to + device::in_eight_rows(row, piece + 1),
                        eight_of_fp8(raw.z, raw.w, factor));
      } else {
        const u32 scales =
            __shfl_sync(0xffffffffu, half.scales, which * 8 + slice / 2) >> slice % 2 * 16;
        const u32 factors[2] = {factor_of_scale<record>(scales & 0xffu),
                                factor_of_scale<record>(scales >> 8 & 0xffu)};
        const u32 to = rows + slice / 2 * kPartBytes;
        const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
          store_shared_16(to + device::in_eight_rows(row, slice % 2 * 4 + i),
                          eight_of_e2m1(words[i], factors[i / 2]));
      }
    }
  }
}

// What a warp does for one tile. Lengths are read again in each place: they take no registers.
struct Source {
  const Args& args;
  u32 token;

  __device__ __forceinline__ u32 from(u32 tile, u32 blocks) const {
    return lengths_of(args, token).from(tile, blocks);
  }

  static __device__ __forceinline__ bool of_swa(u32 tile) {
    return kCompressedSlots == 0 || tile < kSwaTiles;
  }
  static __device__ __forceinline__ u32 warp() { return threadIdx.x / 32 % kProducerWarps; }
  static __device__ __forceinline__ u32 slot_in_list(u32 tile, u32 in_warp) {
    return (of_swa(tile) ? tile : tile - kSwaTiles) * kTile + warp() * kWarpSlots + in_warp;
  }

  // The list's entry of the lane's slot. It is not looked at before it is needed.
  __device__ __forceinline__ int listed(u32 tile) const {
    if (tile >= kAllTiles) return -1;
    const u32 entry = slot_in_list(tile, device::lane_anew() % kWarpSlots);
    if (of_swa(tile)) return look_up<kSwaSlots>(args.swa, token, entry);
    return look_up<kCompressedSlots>(args.compressed, token, entry);
  }
  // The same, negative where the entry does not count; says so in shared memory.
  __device__ __forceinline__ int checked(int entry, u32 tile, u32 round) const {
    if (tile >= kAllTiles) return -1;
    const CacheArgs& cache = of_swa(tile) ? args.swa : args.compressed;
    const int length = cache.lengths[token];
    if (static_cast<int>(slot_in_list(tile, device::lane_anew() % kWarpSlots)) >= length)
      entry = -1;
    const u32 lane = device::lane_anew();
    if (lane < kWarpSlots)
      *shared_at<u8>(At::valid + round % kValidTiles * kTile + warp() * kWarpSlots + lane) =
          static_cast<u64>(static_cast<i64>(entry)) < cache.cache_slots;
    return entry;
  }
  __device__ __forceinline__ void bring(Half& half, u32 tile, int entry, u32 index) const {
    if (tile >= kAllTiles) return;
    const bool swa = of_swa(tile);
    load(half, swa ? args.swa : args.compressed, kRecord == Record::fp8 || swa,
         swa ? log2_of(key::swa_page_slots) : log2_of(key::page_slots), entry, index);
  }
  __device__ __forceinline__ void put(const Half& half, u32 tile, u32 buffer, u32 index) const {
    const u32 rows = At::records + buffer * kTileBytes + warp() * 1024;
    if (kRecord == Record::fp8 || of_swa(tile)) {
      store<Record::fp8>(half, rows, index);
    } else {
      store<kRecord>(half, rows, index);
    }
  }
};

template <class Products>
__device__ __forceinline__ void produce(const Args& args, u32 token) {
  const u32 rank = device::cluster_rank();
  const u32 blocks = device::cluster_blocks();
  // The entries of the first tile do not wait for the lengths to tell whether it is listed.
  const Source source{args, token};
  int entry = source.listed(rank);
  u32 tile = source.from(rank, blocks);
  if (tile >= kAllTiles) return;
  if (tile != rank) entry = source.listed(tile);
  entry = source.checked(entry, tile, 0);
  Half halves[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) source.bring(halves[i], tile, entry, i);
  u32 next = source.from(tile + blocks, blocks);
  entry = source.listed(next);
  for (u32 round = 0; tile < kAllTiles; ++round) {
    const u32 buffer = round % kTiles;
    if (round >= kTiles)
      while (!device::barrier_try_wait(barrier_at(kEmpty + buffer * 8), (round / kTiles - 1) % 2)) {
      }
    entry = source.checked(entry, next, round + 1);
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      source.put(halves[i], tile, buffer, i);
      source.bring(halves[i], next, entry, i);
    }
    Products::publish();
    device::barrier_arrive(barrier_at(kFull + buffer * 8));
    tile = next;
    next = source.from(next + blocks, blocks);
    entry = source.listed(next);
  }
}

}  // namespace kiln::kernels::dsv41_decode::mega
