#include "kernel_src/kimi_k3_mla/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_src/shared/bf16.hpp"
#include "kernel_src/shared/e4m3.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Row = std::array<double, kLatentDim>;

const std::array<double, 256>& e4m3_numbers() {
  static const auto numbers = [] {
    std::array<double, 256> made{};
    for (u32 code = 0; code < 256; ++code) made[code] = static_cast<double>(float_of_e4m3(code));
    return made;
  }();
  return numbers;
}

u64 start_of(const Call& call, u64 request) {
  return call.query_starts != nullptr ? static_cast<u64>(call.query_starts[request])
                                      : request * call.max_query;
}

u64 tokens_of(const Call& call, u64 request) {
  return start_of(call, request + 1) - start_of(call, request);
}

/// length - q + t + 1, at least 0, of a length that goes no further than its table.
u64 keys_seen(const Call& call, u64 request, u64 token) {
  const u64 room = call.pages == 0 ? 0 : call.table_width * kPageKeys;
  const u64 length = std::min(static_cast<u64>(std::max(0, call.lengths[request])), room);
  const u64 hidden = tokens_of(call, request) - token - 1;
  return length > hidden ? length - hidden : 0;
}

/// Zeros for a page that is not of the cache.
const u8* key_at(const Call& call, u64 request, u64 key) {
  static constexpr std::array<u8, kKeyDim> kZeros{};
  const std::int64_t page = call.block_tables[request * call.table_stride + key / kPageKeys];
  if (page < 0 || static_cast<u64>(page) >= call.pages) return kZeros.data();
  return static_cast<const u8*>(call.cache) + static_cast<u64>(page) * call.page_stride_bytes +
         key % kPageKeys * call.row_stride_bytes;
}

/// The scores of a row's keys, in octaves: the exponent of 2 that their weight has.
std::vector<double> scores_of(const Call& call, u64 request, u64 token, u64 head) {
  const auto& numbers = e4m3_numbers();
  const u8* query = static_cast<const u8*>(call.query) +
                    ((start_of(call, request) + token) * call.heads + head) * kKeyDim;
  std::array<double, kKeyDim> row{};
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = numbers[query[i]];
  std::vector<double> scores(keys_seen(call, request, token));
  for (u64 key = 0; key < scores.size(); ++key) {
    const u8* bytes = key_at(call, request, key);
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += row[i] * numbers[bytes[i]];
    scores[key] = sum * static_cast<double>(call.softmax_scale_log2);
  }
  return scores;
}

void add_key(const Call& call, u64 request, u64 key, double weight, Row& out) {
  const auto& numbers = e4m3_numbers();
  const u8* bytes = key_at(call, request, key);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * numbers[bytes[i]];
}

/// The sum of so many terms, each of what those before it leave; 0: not rounded.
double in_e4m3(double weight, u32 terms) {
  double sum = terms == 0 ? weight : 0;
  for (u32 i = 0; i < terms; ++i)
    sum += e4m3_numbers()[e4m3_of_float(static_cast<float>(weight - sum))];
  return sum;
}

/// What a split leaves: out / sum, its reference and its sum.
struct Partial {
  Row out{};
  double reference = -kInfinity;
  double sum = 0;
};

Partial attend(const Call& call, u64 request, std::span<const double> scores, u64 first,
               const Numerics& numerics) {
  Partial made;
  for (u64 tile = 0; tile < scores.size(); tile += kTileKeys) {
    const auto keys = scores.subspan(tile, std::min<u64>(kTileKeys, scores.size() - tile));
    const double reference = std::max(made.reference, *std::max_element(keys.begin(), keys.end()));
    const double factor = made.sum == 0 ? 0 : std::exp2(made.reference - reference);
    made.reference = reference;
    made.sum *= factor;
    for (double& value : made.out) value *= factor;
    for (u64 i = 0; i < keys.size(); ++i) {
      const double exact =
          static_cast<double>(numerics.largest_weight) * std::exp2(keys[i] - reference);
      const double rounded = in_e4m3(exact, numerics.e4m3_terms);
      made.sum += numerics.sum_of_rounded ? rounded : exact;
      add_key(call, request, first + tile + i, rounded, made.out);
    }
  }
  for (double& value : made.out) value = made.sum == 0 ? 0 : value / made.sum;
  return made;
}

Row model_row(const Call& call, u64 request, u64 token, u64 head, const Numerics& numerics) {
  const auto scores = scores_of(call, request, token, head);
  for (const double score : scores)
    if (std::isnan(score)) {
      Row nan{};
      nan.fill(kNan);
      return nan;
    }
  const u64 tiles = (scores.size() + kTileKeys - 1) / kTileKeys;
  const u64 keys = (tiles + numerics.split - 1) / numerics.split * kTileKeys;
  std::vector<Partial> partials;
  double largest = -kInfinity;
  for (u64 first = 0; first < scores.size(); first += keys) {
    const auto own = std::span(scores).subspan(first, std::min<u64>(keys, scores.size() - first));
    partials.push_back(attend(call, request, own, first, numerics));
    largest = std::max(largest, partials.back().reference);
    if (numerics.split > 1)
      for (double& value : partials.back().out)
        value = static_cast<double>(float_of_bf16(bf16_of_float(static_cast<float>(value))));
  }
  Row out{};
  double sum = 0;
  for (const Partial& partial : partials) {
    const double weight = partial.sum * std::exp2(partial.reference - largest);
    sum += weight;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * partial.out[i];
  }
  for (double& value : out)
    value = sum == 0 ? 0 : value / sum * static_cast<double>(call.output_scale);
  return out;
}

template <class RowOf>
Output all_rows(const Call& call, const RowOf& row_of) {
  Output output{.heads = call.heads};
  for (const TokenPlace& place : token_places(call))
    for (u64 head = 0; head < call.heads; ++head) {
      const Row row = row_of(place.request, place.token, head);
      output.values.insert(output.values.end(), row.begin(), row.end());
    }
  return output;
}

}  // namespace

std::array<double, kLatentDim> reference_row(const Call& call, u64 request, u64 token, u64 head) {
  const auto scores = scores_of(call, request, token, head);
  Row out{};
  if (scores.empty()) return out;
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (u64 key = 0; key < scores.size(); ++key) {
    const double weight = std::exp2(scores[key] - largest);
    sum += weight;
    add_key(call, request, key, weight, out);
  }
  for (double& value : out) value = value / sum * static_cast<double>(call.output_scale);
  return out;
}

Output reference(const Call& call) {
  return all_rows(call, [&](u64 request, u64 token, u64 head) {
    return reference_row(call, request, token, head);
  });
}

Output model(const Call& call, const Numerics& numerics) {
  return all_rows(call, [&](u64 request, u64 token, u64 head) {
    return model_row(call, request, token, head, numerics);
  });
}

std::vector<TokenPlace> token_places(const Call& call) {
  std::vector<TokenPlace> places;
  if (call.tokens == 0) return places;
  for (u64 request = 0; request < call.batch; ++request)
    for (u64 token = 0; token < tokens_of(call, request); ++token)
      places.push_back({request, token, keys_seen(call, request, token)});
  return places;
}

std::vector<u16> bf16_of(const Output& output) {
  std::vector<u16> bits(output.values.size());
  std::transform(output.values.begin(), output.values.end(), bits.begin(),
                 [](double value) { return bf16_of_float(static_cast<float>(value)); });
  return bits;
}

Errors errors_of(std::span<const u16> got, const Output& want, double absolute, double relative) {
  Errors errors;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const auto value = static_cast<double>(float_of_bf16(got[i]));
    errors.finite &= std::isfinite(value);
    if (std::isnan(value) || std::isnan(want.values[i])) {
      errors.mismatches += std::isnan(value) != std::isnan(want.values[i]) ? 1 : 0;
      continue;
    }
    const double error = std::fabs(value - want.values[i]);
    errors.mismatches += error > absolute + relative * std::fabs(want.values[i]) ? 1 : 0;
    errors.largest = std::max(errors.largest, error);
    difference += error * error;
    size += want.values[i] * want.values[i];
  }
  errors.relative_l2 = difference == 0 ? 0 : std::sqrt(difference / size);
  return errors;
}

}  // namespace kiln::kernels::kimi_k3_mla
