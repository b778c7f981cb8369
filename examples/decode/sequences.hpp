// 64 sequences that are being decoded, in host memory: what an engine's scheduler, its projections
// and its indexer would hand to the attention layers in a step. Numbers are random, shapes are not.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace decoding {

constexpr std::size_t kMost = 64;
constexpr std::size_t kPositions = 2048;  // of a sequence, at most
constexpr std::size_t kWindow = 128;      // latest positions that a token sees as they are
constexpr std::size_t kTopk = 512;        // compressed entries that it sees
constexpr std::size_t kSwaSlots = 256;    // of a sequence, used in turns: two pages
constexpr std::size_t kPageTokens = 128;  // of a page of either cache
constexpr std::size_t kHeads = 16;        // 64 heads over 4 ranks
constexpr std::size_t kHeadDim = 512;
constexpr std::size_t kRopeDim = 64;

/// The slots of a cache that a step writes, and those that its tokens see.
struct Lists {
  std::vector<std::int64_t> row_slots;  // [tokens]
  std::vector<std::int32_t> slots;      // [tokens, width]
  std::vector<std::int32_t> lengths;    // [tokens]
};

/// Of one step: the next token of each of the first sequences.
struct Inputs {
  std::vector<std::uint16_t> query;  // [tokens, heads, 512] bf16
  std::vector<std::uint16_t> rows;   // [tokens, 512] bf16
  std::vector<std::int64_t> positions;
  Lists window;
  Lists entries[2];  // of the compressed caches with ratio 1 and with ratio 2
};

/// [positions, 32 cos then 32 sin]
inline std::vector<float> rotations() {
  std::vector<float> table(kPositions * kRopeDim);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto pair = static_cast<double>(i % 32);
    const double angle = static_cast<double>(i / kRopeDim) * std::pow(10000.0, -pair / 32);
    table[i] = static_cast<float>(i % kRopeDim < 32 ? std::cos(angle) : std::sin(angle));
  }
  return table;
}

class Sequences {
 public:
  Sequences() {
    for (std::size_t i = 0; i < kMost; ++i)
      // Some have hardly begun: their lists are not full.
      lengths_.push_back(
          static_cast<std::int64_t>(i % 8 == 5 ? i : random_() % (kPositions - 128)));
  }

  /// Goes on by one token in the first `tokens` sequences.
  Inputs next(std::size_t tokens) {
    Inputs inputs;
    inputs.query = bf16(tokens * kHeads * kHeadDim);
    inputs.rows = bf16(tokens * kHeadDim);
    for (std::size_t i = 0; i < tokens; ++i) {
      const std::int64_t position = lengths_[i]++;
      inputs.positions.push_back(position);
      add_window(inputs.window, i, position);
      add_entries(inputs.entries[0], i, position, 1);
      add_entries(inputs.entries[1], i, position, 2);
    }
    return inputs;
  }

  /// A cache of random fp8 (528 bytes) or NVFP4 (288 bytes) records.
  std::vector<std::uint8_t> records(std::size_t slots, std::size_t bytes) {
    const bool fp8 = bytes == 528;
    const std::size_t data = fp8 ? 512 : 256;
    std::vector<std::uint8_t> cache(slots * bytes);
    for (std::size_t i = 0; i < cache.size(); ++i) {
      auto value = static_cast<std::uint8_t>(random_());
      if (i % bytes >= data)
        value = static_cast<std::uint8_t>((fp8 ? 117 : 0x20) + value % 4);
      else if (fp8 && (value & 0x7f) == 0x7f)
        value = 0;  // no NaN
      cache[i] = value;
    }
    return cache;
  }

  std::vector<float> sinks() {
    std::vector<float> values(kHeads);
    for (float& value : values) value = normal_(random_);
    return values;
  }

 private:
  std::vector<std::uint16_t> bf16(std::size_t count) {
    std::vector<std::uint16_t> values(count);
    for (auto& value : values)
      value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal_(random_)) >> 16);
    return values;
  }

  // The latest positions, this step's own among them.
  static void add_window(Lists& lists, std::size_t sequence, std::int64_t position) {
    const auto slot_of = [&](std::int64_t at) {
      return static_cast<std::int64_t>(sequence * kSwaSlots) + at % std::int64_t{kSwaSlots};
    };
    const auto length = std::min<std::int64_t>(position + 1, kWindow);
    for (std::int64_t i = 0; i < std::int64_t{kWindow}; ++i)
      lists.slots.push_back(i < length ? static_cast<std::int32_t>(slot_of(position - i)) : -1);
    lists.lengths.push_back(static_cast<std::int32_t>(length));
    lists.row_slots.push_back(slot_of(position));
  }

  // What an indexer might choose of the entries that are complete: here, spread over all of them.
  void add_entries(Lists& lists, std::size_t sequence, std::int64_t position, std::int64_t ratio) {
    const auto first = static_cast<std::int64_t>(sequence * kPositions) / ratio;
    const std::int64_t entries = (position + 1) / ratio;
    const auto length = std::min<std::int64_t>(entries, kTopk);
    const auto turn = static_cast<std::int64_t>(random_() % kPositions);
    for (std::int64_t i = 0; i < std::int64_t{kTopk}; ++i)
      lists.slots.push_back(
          i < length ? static_cast<std::int32_t>(first + (i * entries / length + turn) % entries)
                     : -1);
    lists.lengths.push_back(static_cast<std::int32_t>(length));
    // Only a token that completes an entry writes one.
    lists.row_slots.push_back((position + 1) % ratio == 0 ? first + position / ratio : -1);
  }

  std::mt19937 random_{41};
  std::normal_distribution<float> normal_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace decoding
