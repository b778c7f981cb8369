// Calls of Kimi-K3 MLA in host memory, made from a seed and a few choices: for the tests on both
// sides. What a kernel may not look at holds NaN or ids of no page, what it may not write a
// pattern.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernel_src/kimi_k3_mla/contract.hpp"
#include "kernel_src/shared/e4m3.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

enum class Profile : unsigned char {
  random,     // what a model gives: scores of a few octaves
  peaked,     // in each row one key, some 60 octaves above the rest, of its own
  flat,       // nearly equal scores over values of one sign, at most 2
  sink_key,   // key 0 is 2 in all dims, and even heads ask for it: 150 octaves above the rest
  mild_sink,  // key 0 is some 16 octaves above all others, which are equal and have all the values
  rising,     // each key scores more than the one before, by 100 octaves in all
};

/// The model's: 192 dims of a head before they are absorbed.
inline constexpr float kSoftmaxScale = 0.07216878f;
inline constexpr u16 kOutputPattern = 0x7fc1;  // a NaN that no kernel writes

struct Choices {
  u32 heads = 12;
  std::vector<std::int32_t> lengths = {64};  // keys of each request
  std::vector<std::int32_t> queries{};       // its new tokens; none: one each
  Profile profile = Profile::random;
  float key_scale = 1;  // of random keys: their standard deviation
  bool packed = true;   // the other form needs equal queries
  std::size_t row_gap_bytes = 0;
  std::size_t page_gap_bytes = 0;
  std::size_t spare_entries = 3;  // of each table row, behind the longest request
  std::size_t table_gap = 0;      // entries between table rows
  std::size_t spare_pages = 2;
  std::size_t spare_tokens = 0;  // behind the last request, of a packed query
  u8 unused = 0xff;              // fills what no request names: NaN
  bool wild_entries = true;      // unused table entries are no pages; false: page 0
  float output_scale = 1;
  u32 split = 0;
};

/// A call in host memory. Copies stand alone: what it gives points into the object it is asked of.
struct HostCall {
  Choices choices{};
  std::size_t row_stride = kKeyDim;
  std::size_t page_stride = 0;
  std::size_t pages = 0;
  std::size_t width = 0, table_stride = 0;
  std::size_t tokens = 0;  // with spare ones
  std::size_t max_query = 0;
  std::vector<u8> query{}, cache{};
  std::vector<std::int32_t> tables{}, lengths{}, starts{};
  std::vector<u16> output{};
  std::vector<u8> workspace{};

  std::size_t batch() const { return lengths.size(); }
  u8* key_at(std::size_t request, std::size_t key) {
    const auto page = static_cast<std::size_t>(tables[request * table_stride + key / kPageKeys]);
    return cache.data() + page * page_stride + key % kPageKeys * row_stride;
  }
  /// Tokens that the call writes.
  std::size_t written() const { return static_cast<std::size_t>(starts.back()); }

  Arguments arguments() {
    const u64 heads = choices.heads;
    Arguments made{.workspace = workspace.data(),
                   .workspace_bytes = workspace.size(),
                   .softmax_scale = kSoftmaxScale,
                   .output_scale = choices.output_scale,
                   .max_query = max_query,
                   .split = choices.split};
    if (choices.packed) {
      made.query = Tensor::dense(query.data(), DataType::e4m3, {tokens, heads, kKeyDim});
      made.query_starts = Tensor::dense(starts.data(), DataType::int32, {starts.size()});
      made.output =
          OutputTensor::dense(output.data(), DataType::bfloat16, {tokens, heads, kLatentDim});
    } else {
      made.query =
          Tensor::dense(query.data(), DataType::e4m3, {batch(), max_query, heads, kKeyDim});
      made.output = OutputTensor::dense(output.data(), DataType::bfloat16,
                                        {batch(), max_query, heads, kLatentDim});
    }
    made.cache = Tensor::dense(cache.data(), DataType::e4m3, {pages, kPageKeys, kKeyDim});
    made.cache.strides = {page_stride, row_stride, 1};
    made.block_tables = Tensor::dense(tables.data(), DataType::int32, {batch(), width});
    made.block_tables.strides = {table_stride, 1};
    made.lengths = Tensor::dense(lengths.data(), DataType::int32, {batch()});
    return made;
  }
  HostTables host_tables() const { return {tables, lengths, starts}; }
};

namespace detail {

/// The same numbers everywhere, and cheap: inputs are large.
class Random {
 public:
  explicit Random(u64 seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}
  u64 next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() >> 11) % limit; }

 private:
  u64 state_;
};

/// E4M3 codes of numbers that lie evenly from `low` to `high`.
class Uniform {
 public:
  Uniform(float low, float high) {
    for (std::size_t i = 0; i < codes_.size(); ++i) {
      const float part = (static_cast<float>(i) + 0.5f) / static_cast<float>(codes_.size());
      codes_[i] = static_cast<u8>(e4m3_of_float(low + (high - low) * part));
    }
  }
  void fill(Random& random, u8* row, std::size_t count) const {
    for (std::size_t i = 0; i < count; i += 5) {
      u64 bits = random.next();
      for (std::size_t j = i; j < std::min(i + 5, count); ++j, bits >>= 12)
        row[j] = codes_[bits & 4095u];
    }
  }

 private:
  std::array<u8, 4096> codes_{};
};

inline std::size_t pages_of(std::int32_t length) {
  return (static_cast<std::size_t>(std::max(0, length)) + kPageKeys - 1) / kPageKeys;
}

/// Tables over shuffled pages, with ids of nothing where no length reaches.
inline void fill_tables(HostCall& call, Random& random) {
  const Choices& choices = call.choices;
  std::size_t used = 0;
  for (const std::int32_t length : call.lengths) {
    used += pages_of(length);
    call.width = std::max(call.width, pages_of(length));
  }
  call.width += choices.spare_entries;
  call.table_stride = call.width + choices.table_gap;
  call.pages = used + choices.spare_pages;
  std::vector<std::int32_t> ids(call.pages);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.below(i)]);
  constexpr std::array wild = {-1, std::numeric_limits<std::int32_t>::max(), -77};
  call.tables.assign(call.batch() * call.table_stride, 0);
  if (choices.wild_entries)
    for (std::size_t i = 0; i < call.tables.size(); ++i) call.tables[i] = wild[i % wild.size()];
  std::size_t next = 0;
  for (std::size_t request = 0; request < call.batch(); ++request)
    for (std::size_t i = 0; i < pages_of(call.lengths[request]); ++i)
      call.tables[request * call.table_stride + i] = ids[next++];
}

inline void fill_query_row(const HostCall& call, Random& random, const u8* peak, std::size_t head,
                           u8* row) {
  static const Uniform unit(-1.7320508f, 1.7320508f), small(-0.03f, 0.03f);
  const Profile profile = call.choices.profile;
  (profile == Profile::flat ? small : unit).fill(random, row, kKeyDim);
  if (profile == Profile::peaked && peak != nullptr) std::copy_n(peak, kKeyDim, row);
  if (profile == Profile::mild_sink) {
    std::fill_n(row, kLatentDim, u8{0});
    std::fill_n(row + kLatentDim, kRopeDim, static_cast<u8>(e4m3_of_float(1.0f)));
  }
  if (profile == Profile::rising) std::fill_n(row, kKeyDim, static_cast<u8>(e4m3_of_float(0.875f)));
  if (profile == Profile::sink_key && head % 2 == 0)
    std::fill_n(row, kKeyDim, static_cast<u8>(e4m3_of_float(1.25f)));
}

}  // namespace detail

inline HostCall make_call(const Choices& choices, unsigned seed) {
  detail::Random random(seed);
  HostCall call{.choices = choices, .lengths = choices.lengths};
  std::vector<std::int32_t> queries = choices.queries;
  queries.resize(choices.lengths.size(), choices.queries.empty() ? 1 : 0);
  call.starts.assign(1, 0);
  for (const std::int32_t query : queries) {
    call.starts.push_back(call.starts.back() + query);
    call.max_query = std::max(call.max_query, static_cast<std::size_t>(query));
  }
  call.tokens = call.written() + choices.spare_tokens;
  detail::fill_tables(call, random);

  call.row_stride = kKeyDim + choices.row_gap_bytes;
  call.page_stride = kPageKeys * call.row_stride + choices.page_gap_bytes;
  call.cache.assign(call.pages * call.page_stride, choices.unused);
  const detail::Uniform keys =
      choices.profile == Profile::flat
          ? detail::Uniform(0.5f, 1.5f)
          : detail::Uniform(-1.7320508f * choices.key_scale, 1.7320508f * choices.key_scale);
  for (std::size_t request = 0; request < call.batch(); ++request)
    for (std::int32_t key = 0; key < call.lengths[request]; ++key) {
      u8* row = call.key_at(request, static_cast<std::size_t>(key));
      keys.fill(random, row, kKeyDim);
      if (choices.profile == Profile::mild_sink) {
        std::fill_n(row, kLatentDim, static_cast<u8>(e4m3_of_float(key == 0 ? 0.0f : 1.0f)));
        std::fill_n(row + kLatentDim, kRopeDim,
                    static_cast<u8>(e4m3_of_float(key == 0 ? 2.5f : 0.0f)));
      }
      if (choices.profile == Profile::rising) {
        const float level =
            2.0f * static_cast<float>(key) / static_cast<float>(call.lengths[request]);
        for (u32 i = 0; i < kKeyDim; ++i)  // between E4M3's steps by how many dims are a step up
          row[i] = static_cast<u8>(e4m3_of_float(level + 0.06f * static_cast<float>(i % 8) / 8));
      }
      if (choices.profile == Profile::sink_key && key == 0)
        std::fill_n(row, kKeyDim, static_cast<u8>(e4m3_of_float(2.0f)));
    }

  call.query.assign(call.tokens * choices.heads * kKeyDim, choices.unused);
  u8* row = call.query.data();
  for (std::size_t request = 0; request < call.batch(); ++request)
    for (std::int32_t token = 0; token < queries[request]; ++token)
      for (std::size_t head = 0; head < choices.heads; ++head, row += kKeyDim) {
        const std::int32_t seen = call.lengths[request] - queries[request] + token + 1;
        const u8* peak =
            seen > 0 ? call.key_at(request, random.below(static_cast<std::size_t>(seen))) : nullptr;
        detail::fill_query_row(call, random, peak, head, row);
      }
  call.output.assign(call.tokens * choices.heads * kLatentDim, kOutputPattern);
  return call;
}

}  // namespace kiln::kernels::kimi_k3_mla::test
