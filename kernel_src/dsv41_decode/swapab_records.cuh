// Records on their way from the cache to a tile of bf16 in shared memory.
#pragma once

#include "kernel_src/device/ptx_shared.cuh"
#include "kernel_src/device/tile_products.cuh"
#include "kernel_src/dsv41_decode/record_words.cuh"
#include "kernel_src/dsv41_decode/swapab_common.cuh"

namespace kiln::kernels::dsv41_decode::swapab {

// In which order eight elements of a record lie in a tile: the one that costs least for its
// records, or for those of the compressed cache in a tile that has both. Fp8: 0, 2, 1, 3, 4, 6,
// 5, 7. Nvfp4: 0, 4, 1, 5, 2, 6, 3, 7.
template <class T, Record record>
constexpr Record order_of = T::joined ? kRecord : record;

// Which of the eight ends up at place `i`.
template <Record order>
__device__ __forceinline__ u32 element_at(u32 i) {
  if constexpr (order == Record::fp8) return (i & 4u) | (i & 1u) << 1 | (i >> 1 & 1u);
  return i / 2 + i % 2 * 4;
}

// Eight elements of an fp8 record.
template <Record order>
__device__ __forceinline__ Words4 eight_in_order(u32 word_0, u32 word_1, u32 factor) {
  if constexpr (order == Record::fp8) return eight_of_e4m3<true>(word_0, word_1, factor);
  return eight_of_e4m3<true>(__byte_perm(word_0, word_1, 0x5410),
                             __byte_perm(word_0, word_1, 0x7632), factor);
}

// Gather: each warp brings its share of the tile's records, two rows at a time, the lanes with
// number & 4 the second one: so the pieces that eight lanes store lie in all banks.

// The list of a warp's rows, and the place of the first one there.
struct Place {
  bool swa;
  u32 entry;
};

template <class T>
__device__ __forceinline__ Place place_in_list(u32 rank, u32 warp) {
  const u32 row = first_row(T::tile, warp);
  if constexpr (T::joined) {
    const u32 slot = rank * T::tile + row;
    const bool swa = slot < kSwaSlots;
    return {swa, swa ? slot : slot - kSwaSlots};
  }
  const bool swa = rank < T::swa_tiles;
  return {swa, (swa ? rank : rank - T::swa_tiles) * T::tile + row};
}

// One of two arguments, from registers: what the compiler would make of it is an index for constant
// memory, which takes longer than both.
template <class Value>
__device__ __forceinline__ Value choose(bool swa, Value of_swa, Value of_compressed) {
  return (Value)device::choose(swa, (u64)of_swa, (u64)of_compressed);  // NOLINT: pointers as well
}

__device__ constexpr u32 bits_below(u32 power_of_2) {
  u32 bits = 0;
  while (1u << bits < power_of_2) ++bits;
  return bits;
}

// A warp's share of what the call says of its token, by one load: a lane each has an entry of the
// list, two the position, and all others the list's length. Only exchange between lanes reads it:
// what ptxas could work out sooner would have the query wait for it.
constexpr u32 kPositionLane = 29, kLengthLane = 31;

template <class T>
__device__ __forceinline__ const int* where_to_look_up(const Args& args, u32 token, u32 rank,
                                                       u32 warp, u32 lane) {
  const auto [swa, first] = place_in_list<T>(rank, warp);
  const u32 width = swa ? kSwaSlots : kCompressedSlots;
  const int* from = choose(swa, args.swa.lengths, args.compressed.lengths) + token;
  if (lane < T::most_rows && first + lane < width)
    from = choose(swa, args.swa.slots, args.compressed.slots) + static_cast<u64>(token) * width +
           first + lane;
  if (lane - kPositionLane < 2)
    from = reinterpret_cast<const int*>(args.positions + token) + (lane - kPositionLane);
  return from;
}

__device__ __forceinline__ u64 position_of(u32 looked_up) {
  const u32 low = __shfl_sync(0xffffffffu, looked_up, kPositionLane);
  const u32 high = __shfl_sync(0xffffffffu, looked_up, kPositionLane + 1);
  return static_cast<u64>(high) << 32 | low;
}

// A slice of a record: a lane's 16 bytes, and their scales: one of 16 elements, or two.
struct Raw {
  Words4 words;
  u32 scales;
};

template <class T, Record record>
struct Gathered {
  static constexpr u32 kRounds = record == Record::fp8 ? 2 : 1;  // 16 lanes by 16 bytes a round
  Raw raw[T::most_rows / 2][kRounds];
};

// Whether records go to shared memory ahead of the query, and are fetched after their scales. Loads
// share scoreboards, of which ptxas then gives a warp's first two rows their own: 0.3 us less here,
// elsewhere as fast or slower, or registers do not do.
template <class T>
constexpr bool kRecordsFirst = kHeads == 32 && (T::tile == kLargeTile) && kRecord == Record::fp8;

// Rows of a warp are two more or two less in places.
template <class T>
__device__ __forceinline__ bool has_pair(u32 warp, u32 pair) {
  return !T::joined || pair < 2 || warp < kWarps / 2;
}

template <class T, Record record>
__device__ __forceinline__ Gathered<T, record> gather(const Args& args, u32 looked_up, u32 rank,
                                                      u32 warp, u32 lane) {
  const auto [swa, first] = place_in_list<T>(rank, warp);
  const u64 base = reinterpret_cast<u64>(choose(swa, args.swa.base, args.compressed.base));
  const u64 page_stride =
      choose(swa, args.swa.page_stride_bytes, args.compressed.page_stride_bytes);
  const u64 row_stride = choose(swa, args.swa.row_stride_bytes, args.compressed.row_stride_bytes);
  const u64 cache_slots = choose(swa, args.swa.cache_slots, args.compressed.cache_slots);
  const u32 page_bits = swa ? bits_below(key::swa_page_slots) : bits_below(key::page_slots);
  const int width = static_cast<int>(swa ? kSwaSlots : kCompressedSlots);
  const int listed = static_cast<int>(__shfl_sync(0xffffffffu, looked_up, kLengthLane));
  const int length = listed < width ? listed : width;
  const u32 slot = __shfl_sync(0xffffffffu, looked_up, lane);  // see where_to_look_up()
  const u32 row = first_row(T::tile, warp);
  const bool valid =
      static_cast<int>(first + lane) < length && static_cast<int>(slot) >= 0 && slot < cache_slots;
  const u64 from =
      base + (slot >> page_bits) * page_stride + (slot & ((1u << page_bits) - 1)) * row_stride;
  if (lane < first_row(T::tile, warp + 1) - row) *shared_at<u8>(T::at.valid + row + lane) = valid;
  const u32 mask = __ballot_sync(0xffffffffu, valid);
  using Result = Gathered<T, record>;
  Result gathered;
#pragma unroll
  for (u32 pair = 0; pair < T::most_rows / 2; ++pair) {
    if (!has_pair<T>(warp, pair)) break;
    const u32 which = 2 * pair + lane / 4 % 2;
    const u64 data = __shfl_sync(0xffffffffu, from, which);
    // What rounds add is part of the instructions.
    const u32 slice = slice_of_lane(lane);
    const u8* words = reinterpret_cast<const u8*>(data + slice * 16);
    const u8* scales =
        reinterpret_cast<const u8*>(data + (record == Record::fp8 ? slice / 2 : slice * 2));
#pragma unroll
    for (u32 round = 0; round < Result::kRounds; ++round) {
      Raw& raw = gathered.raw[pair][round];
      raw = {{0, 0, 0, 0}, 0};
      if ((mask >> which & 1u) == 0) continue;
      if (!kRecordsFirst<T>) raw.words = device::load_16_once(words + round * 256);
      raw.scales = record == Record::fp8 ? device::load_1(scales + 512 + round * 8)
                                         : device::load_2(scales + 256);
    }
#pragma unroll
    for (u32 round = 0; kRecordsFirst<T> && round < Result::kRounds; ++round)
      if ((mask >> which & 1u) != 0)
        gathered.raw[pair][round].words = device::load_16_once(words + round * 256);
  }
  return gathered;
}

// What 32 elements of a record are below in magnitude, as bf16, of their scale's factor; NaN of
// NaN.
template <Record record>
__device__ __forceinline__ u16 ceiling_of(u32 factor) {
  // 512 is above E4M3 and 8 above E2M1, whose bits are off by 2^120 and by 2^126.
  constexpr u32 largest = record == Record::fp8 ? (127 + 9 - 120) << 7 : (127 + 3 - 126) << 7;
  return static_cast<u16>(device::multiply_bf16x2(factor, largest * 0x10001u));
}

// A slot that is not to be read becomes a row of zeros.
template <class T, Record record>
__device__ __forceinline__ void store_records(const Gathered<T, record>& gathered, u32 warp,
                                              u32 lane) {
  // What two slices are below is stored at once: fewer instructions. What ptxas makes of the large
  // tile of 16 heads and fp8 takes 0.06 us more then.
  constexpr bool one_store =
      record == Record::fp8 && (T::tile != kLargeTile || kHeads != 16 || kRecord != Record::fp8);
  // An address differs from the lane's first one in some bits, which say the piece, and by what is
  // part of the instruction.
  const u32 first = first_row(T::tile, warp);
  const u32 second_row = lane / 4 % 2;
  const u32 lane_slice = slice_of_lane(lane);
  const u32 lane_piece =
      record == Record::fp8 ? lane_slice % 4 * 2 : lane_slice % 2 * 4 + (lane_slice & 2u);
  const u32 lane_part = record == Record::fp8 ? lane_slice / 4 : lane_slice / 2;
  const u32 lane_at = shared_base() + T::at.records + rows_at<T::tile>(first, lane_part) +
                      second_row * 128 + (lane_piece ^ second_row) * 16;
  u32 to_next_round = 4 * whole_rows(T::tile) * 128;
  if (rest_rows(T::tile) != 0 && first >= whole_rows(T::tile))
    to_next_round = kRestParts / 2 * rest_rows(T::tile) * 128;
  const auto store = [&](u32 pair, u32 round, u32 other_piece, const Words4& words) {
    const u32 at = lane_at ^ ((first + 2 * pair) % 8 ^ other_piece) * 16;
    device::store_shared_16(at + pair * 256 + round * to_next_round, words.x, words.y, words.z,
                            words.w);
  };
#pragma unroll
  for (u32 pair = 0; pair < T::most_rows / 2; ++pair) {
    if (!has_pair<T>(warp, pair)) break;
    const u32 row = first + 2 * pair + second_row;
    const u32 ceilings = T::at.ceilings + row * 2;
    u32 of_slice = 0;
    u32 lanes_with_some = 0;
#pragma unroll
    for (u32 round = 0; round < Gathered<T, record>::kRounds; ++round) {
      const Raw& raw = gathered.raw[pair][round];
      const u32 slice = round * 16 + slice_of_lane(lane);
      if constexpr (record == Record::fp8) {
        const u32 factor = factor_of_scale<record>(raw.scales);
        store(pair, round, 0,
              eight_in_order<order_of<T, record>>(raw.words.x, raw.words.y, factor));
        store(pair, round, 1,
              eight_in_order<order_of<T, record>>(raw.words.z, raw.words.w, factor));
        // Zeros are below anything, whatever their scale: nothing else must be lost beside them.
        const bool some =
            ((raw.words.x | raw.words.y | raw.words.z | raw.words.w) & 0x7f7f7f7fu) != 0;
        const u32 lanes = __ballot_sync(0xffffffffu, some);
        if (!one_store && slice % 2 == 0)
          *shared_at<u16>(ceilings + slice / 2 * ceiling_row_bytes(T::tile)) =
              (lanes >> lane & 3u) != 0 ? ceiling_of<record>(factor) : u16{0};
        // Two lanes have a scale: one stores what the first slice is below, one the second.
        if (one_store && (round == 0 || slice % 2 != 0)) {
          of_slice = factor;
          lanes_with_some = lanes;
        }
      } else {
        const u32 factor_0 = factor_of_scale<record>(raw.scales & 0xffu);
        const u32 factor_1 = factor_of_scale<record>(raw.scales >> 8);
        *shared_at<u16>(ceilings + slice * ceiling_row_bytes(T::tile)) = ceiling_of<record>(
            device::larger_u16x2(factor_0 & 0x7fff7fffu, factor_1 & 0x7fff7fffu));
        // Every other two lanes begin with the second half, for the sake of the banks.
        const bool swapped = slice & 2u;
        const u32 words_of_first[2] = {swapped ? raw.words.z : raw.words.x,
                                       swapped ? raw.words.w : raw.words.y};
        const u32 words_of_second[2] = {swapped ? raw.words.x : raw.words.z,
                                        swapped ? raw.words.y : raw.words.w};
        const u32 factor_of_first = swapped ? factor_1 : factor_0;
        const u32 factor_of_second = swapped ? factor_0 : factor_1;
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
          store(pair, 0, i, eight_of_e2m1(words_of_first[i], factor_of_first));
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
          store(pair, 0, 2 + i, eight_of_e2m1(words_of_second[i], factor_of_second));
      }
    }
    if constexpr (one_store) {
      const u32 block = slice_of_lane(lane) / 2 + lane % 2 * 8;
      *shared_at<u16>(ceilings + block * ceiling_row_bytes(T::tile)) =
          (lanes_with_some & 3u << (lane & ~1u)) != 0 ? ceiling_of<record>(of_slice) : u16{0};
    }
  }
}

}  // namespace kiln::kernels::dsv41_decode::swapab
