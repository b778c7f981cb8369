// Calls of sparse decode attention in host memory, made from a seed and a few choices: for the
// tests on both sides. What a program may not look at holds NaN, what it may not write a pattern.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_src/dsv41_decode/arguments.hpp"
#include "kernel_src/dsv41_decode/key.hpp"
#include "kernel_src/dsv41_kv_insert/reference.hpp"
#include "tests/kernel_src/dsv41_kv_insert_inputs.hpp"

namespace kiln::kernels::dsv41_decode::test {

enum class Profile : unsigned char {
  random,  // scores of unit variance, what a model gives
  peaked,  // in each head one key, another for each, some 20 above the rest
  flat,    // nearly equal scores over rows of one sign
};

enum class Lengths : unsigned char {
  full,             // the lists' widths; every third token claims more
  partial,          // anything from 1 to one less than the width; another for each token and list
  only_swa,         // no compressed entries
  only_compressed,  // no sliding-window entries
  none,             // 0 in turn with a negative number
};

/// Entries inside the length that must be skipped: -1, other negative ids and ids behind the cache.
enum class Holes : unsigned char {
  none,
  front,      // the first eighth of the length
  middle,     // an eighth in its middle
  end,        // its last eighth
  tiles,      // every other tile of 64 or 128 entries, the first among them
  scattered,  // every third entry
  all,
};

enum class Sinks : unsigned char {
  null,
  none,    // -infinity for all heads
  finite,  // -2 to 4
  mixed,   // in turn -infinity, 0.5, +infinity, 30, -30
};

struct Choices {
  Key key{};
  std::size_t tokens = 1;
  Profile profile = Profile::random;
  Lengths lengths = Lengths::full;
  Holes holes = Holes::none;
  Sinks sinks = Sinks::finite;
  bool bad_positions = false;     // from the second token on, some are not to be written
  std::size_t row_gap_bytes = 0;  // behind each record of either cache
  std::size_t page_gap_bytes = 0;
  std::size_t output_gap_bytes = 0;  // behind each token's output
  std::size_t scale_gap_words = 0;   // behind each column and each group of scales
  u8 unlisted = 0xff;                // fills what no list names: NaN in both records
  u16 dead_heads = 0;                // fills the query's padding heads; the writer leaves zeros
};

inline constexpr u8 kOutputPattern = 0xa5;
inline constexpr std::size_t kTileSwaSlots = 64;
inline constexpr std::size_t kTileCompressedSlots = 128;

/// One cache and its list.
struct HostList {
  Record record = Record::fp8;
  std::size_t width = 0;
  std::size_t page_slots = 64;
  std::size_t pages = 0;
  std::size_t row_stride = 0;   // bytes
  std::size_t page_stride = 0;  // bytes
  std::vector<u8> cache{};
  std::vector<std::int32_t> slots{};    // [tokens, width]
  std::vector<std::int32_t> lengths{};  // [tokens]
  std::vector<std::int32_t> written{};  // slots that hold records, the only ones that lists name

  std::span<u8> record_at(std::size_t slot) {
    return std::span(cache).subspan(
        slot / page_slots * page_stride + slot % page_slots * row_stride,
        dsv41::record_bytes(record));
  }
};

/// A call in host memory. Copies stand alone: arguments() points into the object it is asked of.
struct HostCall {
  Key key{};
  std::size_t tokens = 1;
  std::size_t rope_positions = 512;
  std::size_t output_stride = 32768;  // bytes
  std::size_t scale_group_stride = 0;
  std::size_t scale_column_stride = 0;
  std::vector<u16> query{};
  std::vector<std::int64_t> positions{};
  std::vector<float> cos_sin{}, sinks{};  // no sinks: null
  HostList swa{}, compressed{};
  std::vector<u8> output{}, output_scales{};

  Arguments arguments() {
    const bool compresses = key.compressed_slots != 0;
    return {.query = query.data(),
            .positions = positions.data(),
            .cos_sin = cos_sin.data(),
            .sinks = sinks.empty() ? nullptr : sinks.data(),
            .swa_cache = swa.cache.data(),
            .swa_slots = swa.slots.data(),
            .swa_lengths = swa.lengths.data(),
            .compressed_cache = compresses ? compressed.cache.data() : nullptr,
            .compressed_slots = compresses ? compressed.slots.data() : nullptr,
            .compressed_lengths = compresses ? compressed.lengths.data() : nullptr,
            .output = output.data(),
            .output_scales = output_scales.data(),
            .swa_page_stride_bytes = swa.page_stride,
            .swa_row_stride_bytes = swa.row_stride,
            .swa_pages = swa.pages,
            .compressed_page_stride_bytes = compressed.page_stride,
            .compressed_row_stride_bytes = compressed.row_stride,
            .compressed_pages = compressed.pages,
            .output_stride_bytes = output_stride,
            .scale_group_stride_words = scale_group_stride,
            .scale_column_stride_words = scale_column_stride,
            .rope_positions = rope_positions,
            .tokens = tokens};
  }

  u16& query_at(std::size_t token, std::size_t head, std::size_t dim) {
    return query[((token * 32 + dim / 16) * 64 + head) * 16 + dim % 16];
  }
};

namespace detail {

using Random = dsv41_kv_insert::test::Inputs;
using dsv41_kv_insert::test::bf16_of;

/// Uniform of unit variance.
inline float unit(Random& random) {
  return random.uniform(-1.7320508f, 1.7320508f);
}

template <class T>
void shuffle(std::vector<T>& values, Random& random) {
  for (std::size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[random.below(static_cast<unsigned>(i))]);
}

/// A cache twice as large as `records`, at least three pages of it, with records in slots scattered
/// over all pages. Also keeps the rows, [written slots, 512] bf16 before their rotation.
inline HostList make_cache(const Choices& choices, Record record, std::size_t page_slots,
                           std::size_t records, const std::vector<float>& cos_sin, Random& random,
                           std::vector<u16>& rows) {
  HostList list{.record = record, .page_slots = page_slots};
  const std::size_t bytes = dsv41::record_bytes(record);
  list.pages = std::max<std::size_t>(3, (2 * records + page_slots - 1) / page_slots);
  list.row_stride = bytes + choices.row_gap_bytes;
  list.page_stride = page_slots * list.row_stride + choices.page_gap_bytes;
  list.cache.assign(list.pages * list.page_stride, choices.unlisted);
  list.written.resize(list.pages * page_slots);
  for (std::size_t i = 0; i < list.written.size(); ++i)
    list.written[i] = static_cast<std::int32_t>(i);
  shuffle(list.written, random);
  list.written.resize(records);
  rows.resize(records * dsv41::kHeadDim);
  const auto positions = static_cast<unsigned>(cos_sin.size() / dsv41::kRopeDim);
  for (std::size_t n = 0; n < records; ++n) {
    const std::span<u16> row(rows.data() + n * dsv41::kHeadDim, dsv41::kHeadDim);
    for (u16& value : row)
      value = bf16_of(choices.profile == Profile::flat ? random.uniform(0.5f, 1.5f) : unit(random));
    const float* angles = cos_sin.data() + random.below(positions) * dsv41::kRopeDim;
    dsv41_kv_insert::model_record(record, row, {angles, dsv41::kRopeDim},
                                  list.record_at(static_cast<std::size_t>(list.written[n])));
  }
  return list;
}

inline bool is_hole(Holes holes, std::size_t i, std::size_t length, std::size_t tile) {
  const std::size_t eighth = std::max<std::size_t>(1, length / 8);
  switch (holes) {
    case Holes::none:
      return false;
    case Holes::front:
      return i < eighth;
    case Holes::middle:
      return i >= length / 2 && i < length / 2 + eighth;
    case Holes::end:
      return i + eighth >= length;
    case Holes::tiles:
      return i / tile % 2 == 0;
    case Holes::scattered:
      return i % 3 == 1;
    case Holes::all:
      return true;
  }
  return false;
}

/// The length that a token's list claims, which may lie outside 0 to width.
inline std::int32_t length_of(Lengths lengths, bool is_swa, std::size_t token, std::size_t width,
                              Random& random) {
  const auto full = static_cast<std::int32_t>(width + (token % 3 == 1 ? 1000 : 0));
  const std::int32_t nothing = token % 2 == 0 ? 0 : -3;
  switch (lengths) {
    case Lengths::full:
      return full;
    case Lengths::partial:
      return width < 2
                 ? full
                 : static_cast<std::int32_t>(1 + random.below(static_cast<unsigned>(width) - 1));
    case Lengths::only_swa:
      return is_swa ? full : nothing;
    case Lengths::only_compressed:
      return is_swa ? nothing : full;
    case Lengths::none:
      return nothing;
  }
  return 0;
}

/// The lists of all tokens, no slot twice in one of them. `valid` receives the row behind each
/// entry that is not skipped, token by token.
inline void fill_lists(const Choices& choices, bool is_swa, std::size_t width, HostList& list,
                       const std::vector<u16>& rows, Random& random,
                       std::vector<std::vector<const u16*>>& valid) {
  list.width = width;
  list.slots.assign(choices.tokens * width, 0);
  const auto slots = static_cast<std::int32_t>(list.pages * list.page_slots);
  const std::vector<std::int32_t> skipped = {-1, std::numeric_limits<std::int32_t>::min(), slots,
                                             std::numeric_limits<std::int32_t>::max(), -7};
  // Slots that hold no record, and ids of nothing.
  std::vector<bool> holds(static_cast<std::size_t>(slots), false);
  for (const std::int32_t slot : list.written) holds[static_cast<std::size_t>(slot)] = true;
  const auto empty =
      static_cast<std::int32_t>(std::find(holds.begin(), holds.end(), false) - holds.begin());
  std::vector<std::int32_t> order(list.written.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const std::size_t tile = is_swa ? kTileSwaSlots : kTileCompressedSlots;
  for (std::size_t token = 0; token < choices.tokens; ++token) {
    shuffle(order, random);
    const std::int32_t claimed = length_of(choices.lengths, is_swa, token, width, random);
    list.lengths.push_back(claimed);
    const auto length = static_cast<std::size_t>(
        std::clamp<std::int32_t>(claimed, 0, static_cast<std::int32_t>(width)));
    for (std::size_t i = 0; i < width; ++i) {
      std::int32_t& slot = list.slots[token * width + i];
      if (i >= length) {
        slot = i % 2 == 0 ? std::numeric_limits<std::int32_t>::max() - 5 : empty;
      } else if (is_hole(choices.holes, i, length, tile)) {
        slot = skipped[i % 2 == 0 ? 0 : i / 2 % skipped.size()];
      } else {
        const auto n = static_cast<std::size_t>(order[i]);
        slot = list.written[n];
        valid[token].push_back(rows.data() + n * dsv41::kHeadDim);
      }
    }
  }
}

inline std::vector<float> make_sinks(Sinks sinks, std::size_t heads, Random& random) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> mixed = {-infinity, 0.5f, infinity, 30.0f, -30.0f};
  std::vector<float> values(sinks == Sinks::null ? 0 : heads, -infinity);
  for (std::size_t head = 0; head < values.size(); ++head) {
    if (sinks == Sinks::finite) values[head] = random.uniform(-2, 4);
    if (sinks == Sinks::mixed) values[head] = mixed[head % mixed.size()];
  }
  return values;
}

}  // namespace detail

inline HostCall make_call(const Choices& choices, unsigned seed) {
  detail::Random random(seed);
  const Key& key = choices.key;
  HostCall call{.key = key, .tokens = choices.tokens};
  call.cos_sin = random.cos_sin(call.rope_positions);
  std::vector<u16> swa_rows;
  std::vector<u16> compressed_rows;
  std::vector<std::vector<const u16*>> valid(call.tokens);
  call.swa = detail::make_cache(choices, Record::fp8, key.swa_page_slots, key.swa_slots * 3 / 2 + 1,
                                call.cos_sin, random, swa_rows);
  detail::fill_lists(choices, true, key.swa_slots, call.swa, swa_rows, random, valid);
  if (key.compressed_slots != 0) {
    call.compressed =
        detail::make_cache(choices, key.record, key.page_slots, key.compressed_slots * 3 / 2 + 1,
                           call.cos_sin, random, compressed_rows);
    detail::fill_lists(choices, false, key.compressed_slots, call.compressed, compressed_rows,
                       random, valid);
  }
  for (std::size_t token = 0; token < call.tokens; ++token) {
    std::int64_t position = random.below(static_cast<unsigned>(call.rope_positions));
    if (choices.bad_positions && token % 5 == 1) position = -1;
    if (choices.bad_positions && token % 5 == 3)
      position = static_cast<std::int64_t>(call.rope_positions);
    call.positions.push_back(position);
  }
  call.sinks = detail::make_sinks(choices.sinks, key.heads, random);

  call.query.assign(call.tokens * 32 * 64 * 16, choices.dead_heads);
  for (std::size_t token = 0; token < call.tokens; ++token)
    for (std::size_t head = 0; head < key.heads; ++head) {
      const u16* peak = nullptr;
      if (choices.profile == Profile::peaked && !valid[token].empty())
        peak = valid[token][random.below(static_cast<unsigned>(valid[token].size()))];
      for (std::size_t i = 0; i < dsv41::kHeadDim; ++i) {
        const float own = detail::unit(random);
        u16& value = call.query_at(token, head, i);
        // Rotated dims meet keys of other positions, so the peak is made of the others.
        const bool rotated = i >= dsv41::kHeadDim - dsv41::kRopeDim;
        if (peak != nullptr)
          value = rotated ? detail::bf16_of(own / 4) : peak[i];
        else
          value = detail::bf16_of(choices.profile == Profile::flat ? own / 256 : own);
      }
    }

  call.output_stride = 32768 + choices.output_gap_bytes;
  call.output.assign(call.tokens * call.output_stride, kOutputPattern);
  call.scale_column_stride = (call.tokens + 3) / 4 * 4 + choices.scale_gap_words;
  call.scale_group_stride = 32 * call.scale_column_stride + choices.scale_gap_words;
  call.output_scales.assign(8 * call.scale_group_stride * 4, kOutputPattern);
  return call;
}

}  // namespace kiln::kernels::dsv41_decode::test
