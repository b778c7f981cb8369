// Inputs of the cache writer that its tests on both sides share: rows by profile, and whole calls.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "kernel_src/dsv41_kv_insert/launch.hpp"

namespace kiln::kernels::dsv41_kv_insert::test {

enum class Profile : unsigned char {
  normal,        // what a model gives
  wide,          // exponents all over bf16
  clamp,         // group maxima at 448 * 2^k and the bf16 values next to it
  floor,         // maxima around 1e-4
  subnormal,     // bf16 subnormals
  zero,          // zeros of both signs
  ties,          // halfway between the codes of both data formats
  scale_ties,    // maxima whose sixth is halfway between two E4M3 scales
  largest,       // the largest bf16 values beside small ones
  infinity,      // an infinity of either sign in some groups
  nan,           // one NaN in some groups
  nan_and_more,  // groups of NaN alone, and of NaN with infinities
};
inline constexpr std::array kProfiles = {
    Profile::normal,    Profile::wide,     Profile::clamp, Profile::floor,
    Profile::subnormal, Profile::zero,     Profile::ties,  Profile::scale_ties,
    Profile::largest,   Profile::infinity, Profile::nan,   Profile::nan_and_more};

constexpr std::string_view name_of(Profile profile) {
  constexpr std::array<std::string_view, kProfiles.size()> names = {
      "normal", "wide",       "clamp",   "floor",    "subnormal", "zero",
      "ties",   "scale_ties", "largest", "infinity", "nan",       "nan_and_more"};
  return names[static_cast<std::size_t>(profile)];
}

/// Rounded to nearest, ties to even. Requires no NaN.
inline u16 bf16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline constexpr u16 kBf16Infinity = 0x7f80;
inline constexpr u16 kBf16Largest = 0x7f7f;

class Inputs {
 public:
  explicit Inputs(unsigned seed) : random_(seed) {}

  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(random_() % 65536u) / 65535.0f;
  }
  u16 sign() { return static_cast<u16>(below(2) << 15); }

  void fill_row(Profile profile, u16* row) {
    for (std::size_t group = 0; group < 32; ++group) fill_group(profile, row + group * 16);
  }

  /// [positions, 64]: the angles of a model, and rows of cos and sin that are exact.
  std::vector<float> cos_sin(std::size_t positions) {
    std::vector<float> table(positions * 64);
    for (std::size_t position = 0; position < positions; ++position)
      for (std::size_t pair = 0; pair < 32; ++pair) {
        const double angle =
            static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(pair) / 32);
        table[position * 64 + pair] = static_cast<float>(std::cos(angle));
        table[position * 64 + 32 + pair] = static_cast<float>(std::sin(angle));
      }
    return table;
  }

 private:
  u16 with_sign(float magnitude) { return static_cast<u16>(bf16_of(magnitude) ^ sign()); }

  void fill_group(Profile profile, u16* group) {
    for (std::size_t i = 0; i < 16; ++i) group[i] = with_sign(uniform(0, 4));
    const std::size_t chosen = below(16);
    switch (profile) {
      case Profile::normal:
        return;
      case Profile::wide:
        for (std::size_t i = 0; i < 16; ++i)
          group[i] = static_cast<u16>((random_() % 0x7f80u) ^ sign());
        return;
      case Profile::clamp: {
        const float base = std::ldexp(448.0f, static_cast<int>(below(30)) - 20);
        for (std::size_t i = 0; i < 16; ++i) group[i] = with_sign(base * uniform(0, 1));
        group[chosen] = static_cast<u16>((bf16_of(base) + below(3) - 1u) ^ sign());
        return;
      }
      case Profile::floor:
        for (std::size_t i = 0; i < 16; ++i) group[i] = with_sign(uniform(0, 2e-4f));
        return;
      case Profile::subnormal:
        for (std::size_t i = 0; i < 16; ++i) group[i] = static_cast<u16>(below(0x80) ^ sign());
        return;
      case Profile::zero:
        for (std::size_t i = 0; i < 16; ++i) group[i] = sign();
        return;
      case Profile::ties: {
        // With 6 in the group the NVFP4 scale is 1, and multiples of 1/8 are ties of both formats.
        for (std::size_t i = 0; i < 16; ++i)
          group[i] = with_sign(static_cast<float>(below(49)) / 8);
        group[chosen] = with_sign(6);
        return;
      }
      case Profile::scale_ties: {
        const float middle = std::ldexp(16.0f + static_cast<float>(2 * below(8) + 1),
                                        static_cast<int>(below(14)) - 10);
        for (std::size_t i = 0; i < 16; ++i) group[i] = with_sign(middle * uniform(0, 6));
        group[chosen] = static_cast<u16>((bf16_of(6 * middle) + below(3) - 1u) ^ sign());
        return;
      }
      case Profile::largest:
        group[chosen] = static_cast<u16>((kBf16Largest - below(64)) ^ sign());
        return;
      case Profile::infinity:
        if (below(2) == 0) group[chosen] = static_cast<u16>(kBf16Infinity ^ sign());
        return;
      case Profile::nan:
        if (below(2) == 0) group[chosen] = static_cast<u16>((0x7f81u + below(0x7f)) ^ sign());
        return;
      case Profile::nan_and_more:
        if (below(2) == 0) {
          for (std::size_t i = 0; i < 16; ++i) group[i] = static_cast<u16>(0x7fc0u ^ sign());
        } else {
          group[chosen] = 0x7fc0;
          group[(chosen + 1) % 16] = static_cast<u16>(kBf16Infinity ^ sign());
        }
        return;
    }
  }

  std::mt19937 random_;
};

/// How a call is laid out; zero strides: without a gap.
struct Layout {
  std::size_t tokens = 1;
  std::size_t pages = 4;
  std::size_t row_gap_bytes = 0;   // behind each record
  std::size_t page_gap_bytes = 0;  // behind each page
  std::size_t input_gap_bytes = 0;
  std::size_t query_gap_bytes = 0;
};

/// A call in host memory. Every byte that the kernel may not touch holds a pattern.
struct HostCall {
  Key key{};
  Layout layout{};
  std::size_t rope_positions = 512;
  std::vector<u16> query{}, rows{};
  std::vector<std::int64_t> positions{}, slots{};
  std::vector<float> cos_sin{};
  std::vector<u8> cache{}, padded_query{};

  std::size_t row_stride() const { return dsv41::record_bytes(key.record) + layout.row_gap_bytes; }
  std::size_t page_stride() const { return key.page_slots * row_stride() + layout.page_gap_bytes; }
  std::size_t input_stride() const { return 1024 + layout.input_gap_bytes; }
  std::size_t query_stride() const { return key.heads * 1024u + layout.query_gap_bytes; }

  /// The call with all pointers into this object.
  Arguments arguments() {
    return {.query = key.heads != 0 ? query.data() : nullptr,
            .padded_query = key.heads != 0 ? padded_query.data() : nullptr,
            .rows = rows.data(),
            .positions = positions.data(),
            .slots = slots.data(),
            .cos_sin = cos_sin.data(),
            .cache = cache.data(),
            .query_stride_bytes = query_stride(),
            .input_stride_bytes = input_stride(),
            .page_stride_bytes = page_stride(),
            .row_stride_bytes = row_stride(),
            .pages = layout.pages,
            .rope_positions = rope_positions,
            .tokens = layout.tokens};
  }
};

/// Every profile in turn, slots scattered over the pages without a repetition, and now and then -1,
/// a slot beyond the cache, a negative position and one beyond the table.
inline HostCall make_call(const Key& key, const Layout& layout, unsigned seed) {
  Inputs inputs(seed);
  HostCall call{.key = key, .layout = layout};
  call.query.resize(layout.tokens * call.query_stride() / 2);
  for (auto& value : call.query) value = static_cast<u16>(inputs.below(65536));
  call.rows.resize(layout.tokens * call.input_stride() / 2, 0x7fc0);
  for (std::size_t token = 0; token < layout.tokens; ++token)
    inputs.fill_row(kProfiles[(token + seed) % kProfiles.size()],
                    call.rows.data() + token * call.input_stride() / 2);
  call.cos_sin = inputs.cos_sin(call.rope_positions);

  const std::size_t slots = layout.pages * key.page_slots;
  std::vector<std::int64_t> order(slots);
  for (std::size_t i = 0; i < slots; ++i) order[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = slots; i > 1; --i)
    std::swap(order[i - 1], order[inputs.below(static_cast<unsigned>(i))]);
  const auto positions = static_cast<unsigned>(call.rope_positions);
  for (std::size_t token = 0; token < layout.tokens; ++token) {
    std::int64_t slot = token < slots ? order[token] : -1;
    std::int64_t position = inputs.below(positions);
    if (token % 7 == 3) slot = -1;
    if (token % 31 == 11) slot = static_cast<std::int64_t>(slots);
    if (token % 31 == 12) slot = std::numeric_limits<std::int64_t>::min();
    if (token % 37 == 5) position = -1;
    if (token % 37 == 6) position = positions;
    call.slots.push_back(slot);
    call.positions.push_back(position);
  }
  call.cache.assign(layout.pages * call.page_stride(), 0xa5);
  call.padded_query.assign(key.heads != 0 ? layout.tokens * 65536 : 0, 0x5a);
  return call;
}

}  // namespace kiln::kernels::dsv41_kv_insert::test
