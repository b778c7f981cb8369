#include "kernel_src/dsv41_decode/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel_src/shared/bf16.hpp"
#include "kernel_src/shared/e2m1.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "kernel_src/shared/rope.hpp"
#include "kernel_src/shared/ue8m0.hpp"

namespace kiln::kernels::dsv41_decode {
namespace {

constexpr std::size_t kFirstRope = dsv41::kHeadDim - dsv41::kRopeDim;
constexpr std::size_t kPairs = dsv41::kRopeDim / 2;
constexpr std::size_t kBlock = 32;      // dims that share an output scale
constexpr std::size_t kGroupHeads = 8;  // heads of an output group
constexpr std::size_t kGroupBytes = kGroupHeads * dsv41::kHeadDim;
constexpr u32 kMostScaleCode = 166;  // of an fp8 record; larger codes make NaN
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Row = std::array<double, dsv41::kHeadDim>;

/// E4M3 by the bits alone: NaN codes are the next numbers of the series, +-480.
double number_of_e4m3(u32 code) {
  if ((code & 0x7fu) == kE4m3Nan) return (code & 0x80u) != 0 ? -480.0 : 480.0;
  return static_cast<double>(float_of_e4m3(code));
}

bool is_written(const Arguments& arguments, std::size_t token) {
  const std::int64_t position = arguments.positions[token];
  return position >= 0 && static_cast<u64>(position) < arguments.rope_positions;
}

/// [32 cos, 32 sin] of a token that is written.
const float* angles_of(const Arguments& arguments, std::size_t token) {
  return arguments.cos_sin + static_cast<std::size_t>(arguments.positions[token]) * dsv41::kRopeDim;
}

/// A cache with the list of what is wanted of it.
struct Listed {
  Record record;
  const u8* cache;
  const std::int32_t* slots;
  const std::int32_t* lengths;
  u64 width;
  u64 page_slots;
  u64 pages;
  u64 page_stride_bytes;
  u64 row_stride_bytes;
};

void append_rows(const Listed& listed, std::size_t token, std::vector<Row>& rows) {
  const std::size_t bytes = dsv41::record_bytes(listed.record);
  const u64 row_stride = listed.row_stride_bytes != 0 ? listed.row_stride_bytes : bytes;
  const std::int64_t length = listed.lengths[token];
  const auto entries = static_cast<u64>(
      std::clamp<std::int64_t>(length, 0, static_cast<std::int64_t>(listed.width)));
  for (u64 i = 0; i < entries; ++i) {
    const std::int64_t listed_slot = listed.slots[token * listed.width + i];
    if (listed_slot < 0) continue;
    const auto slot = static_cast<u64>(listed_slot);
    if (slot / listed.page_slots >= listed.pages) continue;
    const u8* record = listed.cache + slot / listed.page_slots * listed.page_stride_bytes +
                       slot % listed.page_slots * row_stride;
    rows.push_back(decode_record(listed.record, {record, bytes}));
  }
}

std::vector<Row> rows_of(const Key& key, const Arguments& arguments, std::size_t token) {
  std::vector<Row> rows;
  append_rows({.record = Record::fp8,
               .cache = static_cast<const u8*>(arguments.swa_cache),
               .slots = arguments.swa_slots,
               .lengths = arguments.swa_lengths,
               .width = key.swa_slots,
               .page_slots = key.swa_page_slots,
               .pages = arguments.swa_pages,
               .page_stride_bytes = arguments.swa_page_stride_bytes,
               .row_stride_bytes = arguments.swa_row_stride_bytes},
              token, rows);
  if (key.compressed_slots != 0)
    append_rows({.record = key.record,
                 .cache = static_cast<const u8*>(arguments.compressed_cache),
                 .slots = arguments.compressed_slots,
                 .lengths = arguments.compressed_lengths,
                 .width = key.compressed_slots,
                 .page_slots = key.page_slots,
                 .pages = arguments.compressed_pages,
                 .page_stride_bytes = arguments.compressed_page_stride_bytes,
                 .row_stride_bytes = arguments.compressed_row_stride_bytes},
                token, rows);
  return rows;
}

/// The rotated query: fp32, then bf16, as in the programs.
Row query_of(const Arguments& arguments, std::size_t token, std::size_t head) {
  std::array<float, dsv41::kHeadDim> query{};
  const u8* from = static_cast<const u8*>(arguments.query);
  for (std::size_t i = 0; i < query.size(); ++i) {
    const std::size_t chunk =
        token * (dsv41::kHeadDim / dsv41::kQueryChunk) + i / dsv41::kQueryChunk;
    const std::size_t element =
        (chunk * dsv41::kPaddedHeads + head) * dsv41::kQueryChunk + i % dsv41::kQueryChunk;
    u16 bits = 0;
    std::memcpy(&bits, from + element * sizeof(u16), sizeof(u16));
    query[i] = float_of_bf16(bits);
  }
  const float* angles = angles_of(arguments, token);
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    float& even = query[kFirstRope + 2 * pair];
    float& odd = query[kFirstRope + 2 * pair + 1];
    const float new_even = rotated_even(even, odd, angles[pair], angles[kPairs + pair]);
    const float new_odd = rotated_odd(even, odd, angles[pair], angles[kPairs + pair]);
    even = float_of_bf16(bf16_of_float(new_even));
    odd = float_of_bf16(bf16_of_float(new_odd));
  }
  Row row{};
  std::copy(query.begin(), query.end(), row.begin());
  return row;
}

/// Softmax over the rows and the sink, then the sum of the rows.
void attend(std::span<const Row> rows, const Row& query, double sink, std::span<double> out) {
  if (rows.empty()) {
    std::fill(out.begin(), out.end(), std::isnan(sink) ? kNan : 0.0);
    return;
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(dsv41::kHeadDim));
  std::vector<double> scores;
  double largest = -std::numeric_limits<double>::infinity();
  for (const Row& row : rows) {
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += query[i] * row[i];
    scores.push_back(sum * scale);
    if (scores.back() > largest) largest = scores.back();
  }
  // Infinite for a sink far above all scores as well: then the quotient is 0 to double's precision.
  double denominator = std::exp(sink - largest);
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const double weight = std::exp(scores[n] - largest);
    denominator += weight;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * rows[n][i];
  }
  for (double& value : out) value /= denominator;
}

void rotate_back(const float* angles, std::span<double> out) {
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    const double cosine = static_cast<double>(angles[pair]);
    const double sine = static_cast<double>(angles[kPairs + pair]);
    const double even = out[kFirstRope + 2 * pair];
    const double odd = out[kFirstRope + 2 * pair + 1];
    out[kFirstRope + 2 * pair] = even * cosine + odd * sine;
    out[kFirstRope + 2 * pair + 1] = odd * cosine - even * sine;
  }
}

/// Where the 32 elements of a block and its scale lie, in bytes.
struct Place {
  std::size_t data = 0;
  std::size_t scale = 0;
};

Place place_of(const Arguments& arguments, std::size_t token, std::size_t head, std::size_t chunk) {
  const std::size_t stride = arguments.output_stride_bytes != 0
                                 ? arguments.output_stride_bytes
                                 : dsv41::kPaddedHeads * dsv41::kHeadDim;
  const std::size_t group = head / kGroupHeads;
  const std::size_t block = chunk * kGroupHeads + head % kGroupHeads;
  const std::size_t word = token + group * arguments.scale_group_stride_words +
                           block / 4 * arguments.scale_column_stride_words;
  return {.data = token * stride + group * kGroupBytes + block * kBlock,
          .scale = word * 4 + block % 4};
}

void encode_block(std::span<const double> values, u8* data, u8* scale) {
  float amax = kUe8m0AmaxFloor;
  for (const double value : values)
    if (!std::isnan(value)) amax = std::max(amax, static_cast<float>(std::fabs(value)));
  const u32 code = ue8m0_for_e4m3(amax);
  for (std::size_t i = 0; i < values.size(); ++i)
    data[i] =
        static_cast<u8>(e4m3_of_float(static_cast<float>(values[i]) * ue8m0_reciprocal(code)));
  *scale = static_cast<u8>(code);
}

}  // namespace

std::array<double, dsv41::kHeadDim> decode_record(Record record, std::span<const u8> bytes) {
  Row row{};
  const std::span<const u8> scales = bytes.subspan(dsv41::data_bytes(record));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const u32 scale = scales[i / dsv41::scale_elements(record)];
    if (record == Record::fp8) {
      const double factor = scale > kMostScaleCode ? kNan : float_of_ue8m0(scale);
      row[i] = number_of_e4m3(bytes[i]) * factor;
    } else {
      const u32 code = (bytes[i / 2] >> (i % 2 * 4)) & 0xfu;
      row[i] = static_cast<double>(float_of_e2m1(code)) * float_of_e4m3(scale);
    }
  }
  return row;
}

Output reference(const Key& key, const Arguments& arguments) {
  Output output{.heads = key.heads,
                .values = std::vector<double>(arguments.tokens * key.heads * dsv41::kHeadDim)};
  for (std::size_t token = 0; token < arguments.tokens; ++token) {
    if (!is_written(arguments, token)) continue;
    const std::vector<Row> rows = rows_of(key, arguments, token);
    for (std::size_t head = 0; head < key.heads; ++head) {
      const double sink = arguments.sinks != nullptr ? static_cast<double>(arguments.sinks[head])
                                                     : -std::numeric_limits<double>::infinity();
      const std::span<double> out(
          output.values.data() + (token * key.heads + head) * dsv41::kHeadDim, dsv41::kHeadDim);
      attend(rows, query_of(arguments, token, head), sink, out);
      rotate_back(angles_of(arguments, token), out);
    }
  }
  return output;
}

void encode_output(const Key& key, const Arguments& arguments, std::span<const double> values) {
  for (std::size_t token = 0; token < arguments.tokens; ++token) {
    if (!is_written(arguments, token)) continue;
    for (std::size_t head = 0; head < key.heads; ++head)
      for (std::size_t chunk = 0; chunk < dsv41::kHeadDim / kBlock; ++chunk) {
        const Place place = place_of(arguments, token, head, chunk);
        encode_block(
            values.subspan((token * key.heads + head) * dsv41::kHeadDim + chunk * kBlock, kBlock),
            static_cast<u8*>(arguments.output) + place.data,
            static_cast<u8*>(arguments.output_scales) + place.scale);
      }
  }
}

Output decode_output(const Key& key, const Arguments& arguments) {
  Output output{.heads = key.heads,
                .values = std::vector<double>(arguments.tokens * key.heads * dsv41::kHeadDim)};
  for (std::size_t token = 0; token < arguments.tokens; ++token) {
    if (!is_written(arguments, token)) continue;
    for (std::size_t head = 0; head < key.heads; ++head)
      for (std::size_t i = 0; i < dsv41::kHeadDim; ++i) {
        const Place place = place_of(arguments, token, head, i / kBlock);
        const u32 code = static_cast<const u8*>(arguments.output)[place.data + i % kBlock];
        const u32 scale = static_cast<const u8*>(arguments.output_scales)[place.scale];
        output.values[(token * key.heads + head) * dsv41::kHeadDim + i] =
            static_cast<double>(float_of_e4m3(code)) * float_of_ue8m0(scale);
      }
  }
  return output;
}

double relative_frobenius(std::span<const double> got, std::span<const double> want) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

double largest_error(std::span<const double> got, std::span<const double> want) {
  double largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(got[i] - want[i]);
    // Not std::max, which drops a NaN or keeps it by its place.
    if (!(error <= largest)) largest = error;
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

}  // namespace kiln::kernels::dsv41_decode
