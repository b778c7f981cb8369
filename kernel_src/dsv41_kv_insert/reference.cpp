#include "kernel_src/dsv41_kv_insert/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel_src/shared/bf16.hpp"
#include "kernel_src/shared/e2m1.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "kernel_src/shared/nvfp4.hpp"
#include "kernel_src/shared/rope.hpp"
#include "kernel_src/shared/ue8m0.hpp"

namespace kiln::kernels::dsv41_kv_insert {
namespace {

constexpr std::size_t kFirstRope = dsv41::kHeadDim - dsv41::kRopeDim;
constexpr std::size_t kPairs = dsv41::kRopeDim / 2;

void model_fp8_group(std::span<const float> values, u8* data, u8* scale) {
  float amax = kUe8m0AmaxFloor;
  for (const float value : values) {
    // Not std::fmax, which lets signalling NaNs through; max.f32 drops those as well.
    const u32 magnitude = magnitude_bits(value);
    if (!is_nan_magnitude(magnitude)) amax = std::max(amax, float_of(magnitude));
  }
  const u32 code = ue8m0_for_e4m3(amax);
  const float factor = ue8m0_reciprocal(code);
  for (std::size_t i = 0; i < values.size(); ++i)
    data[i] = static_cast<u8>(e4m3_of_float(values[i] * factor));
  *scale = static_cast<u8>(code);
}

void model_nvfp4_group(std::span<const float> values, u8* data, u8* scale) {
  u32 amax = 0;
  for (const float value : values) amax = std::max(amax, magnitude_bits(value));
  const bool has_nan = is_nan_magnitude(amax);
  const u32 code = has_nan ? kE4m3Nan : e4m3_of_float(nvfp4_scale(float_of(amax)));
  const float divisor = float_of_e4m3(code);
  const float reciprocal = 1.0f / divisor;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const u32 low = e2m1_of_quotient(values[i], divisor, reciprocal);
    const u32 high = e2m1_of_quotient(values[i + 1], divisor, reciprocal);
    data[i / 2] = static_cast<u8>(has_nan ? kE2m1NanWord & 0xffu : low | (high << 4));
  }
  *scale = static_cast<u8>(code);
}

void model_query(const Key& key, const Arguments& arguments, std::size_t token) {
  const std::size_t stride =
      arguments.query_stride_bytes != 0 ? arguments.query_stride_bytes : key.heads * 1024u;
  const u8* from = static_cast<const u8*>(arguments.query) + token * stride;
  u8* to = static_cast<u8*>(arguments.padded_query) + token * kQueryPieces * 16u;
  constexpr std::size_t kPartBytes = dsv41::kQueryChunk * sizeof(u16);
  for (std::size_t chunk = 0; chunk < dsv41::kHeadDim / dsv41::kQueryChunk; ++chunk)
    for (std::size_t head = 0; head < dsv41::kPaddedHeads; ++head, to += kPartBytes) {
      if (head < key.heads)
        std::memcpy(to, from + head * 1024 + chunk * kPartBytes, kPartBytes);
      else
        std::memset(to, 0, kPartBytes);
    }
}

void model_row(const Key& key, const Arguments& arguments, std::size_t token) {
  const std::int64_t slot = arguments.slots[token];
  const std::int64_t position = arguments.positions[token];
  if (slot < 0 || static_cast<u64>(slot) >= arguments.pages * key.page_slots) return;
  if (position < 0 || static_cast<u64>(position) >= arguments.rope_positions) return;
  if (position % key.ratio != key.ratio - 1) return;
  const std::size_t input_stride =
      arguments.input_stride_bytes != 0 ? arguments.input_stride_bytes : 1024u;
  const std::size_t bytes = dsv41::record_bytes(key.record);
  const std::size_t row_stride =
      arguments.row_stride_bytes != 0 ? arguments.row_stride_bytes : bytes;
  std::array<u16, dsv41::kHeadDim> row{};
  std::memcpy(row.data(), static_cast<const u8*>(arguments.rows) + token * input_stride, 1024);
  const auto page = static_cast<std::size_t>(slot / key.page_slots);
  const auto offset = static_cast<std::size_t>(slot % key.page_slots);
  u8* record =
      static_cast<u8*>(arguments.cache) + page * arguments.page_stride_bytes + offset * row_stride;
  const float* angles = arguments.cos_sin + position / key.ratio * key.ratio * dsv41::kRopeDim;
  model_record(key.record, row, {angles, dsv41::kRopeDim}, {record, bytes});
}

}  // namespace

void model_record(Record record, std::span<const u16> row, std::span<const float> cos_sin,
                  std::span<u8> bytes) {
  std::array<float, dsv41::kHeadDim> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float_of_bf16(row[i]);
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    float& even = values[kFirstRope + 2 * pair];
    float& odd = values[kFirstRope + 2 * pair + 1];
    const float new_even = rotated_even(even, odd, cos_sin[pair], cos_sin[kPairs + pair]);
    odd = rotated_odd(even, odd, cos_sin[pair], cos_sin[kPairs + pair]);
    even = new_even;
  }
  const std::size_t group = dsv41::scale_elements(record);
  for (std::size_t g = 0; g < values.size() / group; ++g) {
    const std::span<const float> members(values.data() + g * group, group);
    u8* scale = bytes.data() + dsv41::data_bytes(record) + g;
    if (record == Record::fp8)
      model_fp8_group(members, bytes.data() + g * group, scale);
    else
      model_nvfp4_group(members, bytes.data() + g * group / 2, scale);
  }
}

void model(const Key& key, const Arguments& arguments) {
  for (std::size_t token = 0; token < arguments.tokens; ++token) {
    if (key.heads != 0) model_query(key, arguments, token);
    model_row(key, arguments, token);
  }
}

// From here on nothing of the arithmetic above is used: tables, doubles, std::frexp.
namespace {

/// A number that fp32 may have computed as anything within `error` of it.
struct Value {
  double value = 0;
  double error = 0;
};

struct Rounded {
  unsigned code = 0;
  bool certain = true;
};

/// The non-negative values of a small format, in order of their codes.
template <std::size_t n>
struct Format {
  std::array<double, n> values{};
};

Format<127> e4m3_format() {
  Format<127> format;
  for (unsigned code = 0; code < 127; ++code) {
    const int exponent = static_cast<int>(code / 8);
    const double mantissa = code % 8;
    format.values[code] =
        exponent == 0 ? std::ldexp(mantissa / 8, -6) : std::ldexp(1 + mantissa / 8, exponent - 7);
  }
  return format;
}

constexpr Format<8> kE2m1Format{{0, 0.5, 1, 1.5, 2, 3, 4, 6}};

/// The code nearest to |value|, ties to the even code, what is above the largest to the largest.
template <std::size_t n>
Rounded nearest(const Format<n>& format, Value value) {
  const double magnitude = std::fabs(value.value);
  Rounded result;
  for (unsigned code = 0; code + 1 < n; ++code) {
    const double middle = (format.values[code] + format.values[code + 1]) / 2;
    if (value.error > 0 && std::fabs(magnitude - middle) <= value.error) result.certain = false;
    if (magnitude > middle || (magnitude == middle && code % 2 == 1)) result.code = code + 1;
  }
  return result;
}

struct Group {
  Value amax{};  // of what is no NaN
  bool has_nan = false;
};

Group scan(std::span<const Value> values) {
  Group group;
  for (const auto& [value, error] : values) {
    if (std::isnan(value)) {
      group.has_nan = true;
      continue;
    }
    group.amax.value = std::max(group.amax.value, std::fabs(value));
    group.amax.error = std::max(group.amax.error, error);
  }
  return group;
}

int ue8m0_exponent(double amax) {
  if (std::isinf(amax)) return 120;
  int exponent = 0;
  const double fraction = std::frexp(amax / 448.0, &exponent);  // [0.5, 1) * 2^exponent
  return fraction == 0.5 ? exponent - 1 : exponent;
}

void reference_fp8(std::span<const Value> values, std::size_t g, ReferenceRecord& record) {
  static const Format<127> e4m3 = e4m3_format();
  const auto [amax, has_nan] = scan(values);
  // The floor as fp32 holds it: 1e-4 itself lies next to it, inside the same octave.
  const double floored = std::max(amax.value, 1e-4);
  const int exponent = ue8m0_exponent(floored);
  const bool certain = std::isinf(amax.value) ||
                       (ue8m0_exponent(std::max(amax.value - amax.error, 1e-4)) == exponent &&
                        ue8m0_exponent(std::max(amax.value + amax.error, 1e-4)) == exponent);
  record.bytes[512 + g] = static_cast<u8>(std::clamp(exponent + 127, 0, 254));
  record.certain[512 + g] = certain;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [value, error] = values[i];
    const Rounded rounded =
        nearest(e4m3, {std::ldexp(value, -exponent), std::ldexp(error, -exponent)});
    // Where the rotation may have the other sign, the code is that of a zero of either.
    const bool signed_well = error == 0 || std::fabs(value) > error;
    record.bytes[g * 32 + i] = static_cast<u8>(
        std::isnan(value) ? 0x7fu : rounded.code | (std::signbit(value) ? 0x80u : 0u));
    record.certain[g * 32 + i] = std::isnan(value) || (certain && rounded.certain && signed_well);
  }
}

void reference_nvfp4(std::span<const Value> values, std::size_t g, ReferenceRecord& record) {
  static const Format<127> e4m3 = e4m3_format();
  const auto [amax, has_nan] = scan(values);
  const auto scale_of = [](double wanted) {
    return nearest(e4m3, {std::clamp(wanted / 6, std::ldexp(1, -9), 448.0), 0}).code;
  };
  Rounded scale{scale_of(amax.value)};
  // A sixth that is exactly a tie is one in fp32 as well: an exact amax has no band there.
  bool exact_tie = false;
  for (unsigned code = 0; code + 1 < 127; ++code)
    exact_tie |= (e4m3.values[code] + e4m3.values[code + 1]) * 3 == amax.value;
  const double band = amax.error + std::ldexp(amax.value, -23);
  if (!std::isinf(amax.value) && !(amax.error == 0 && exact_tie))
    scale.certain = scale_of(amax.value - band) == scale_of(amax.value + band);
  record.bytes[256 + g] = static_cast<u8>(has_nan ? 0x7fu : scale.code);
  record.certain[256 + g] = has_nan || scale.certain;
  const double divisor = e4m3.values[scale.code];
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [value, error] = values[i];
    Rounded rounded = nearest(kE2m1Format, {value / divisor, error / divisor});
    if (error > 0 && std::fabs(value) <= error) rounded.certain = false;
    const unsigned code = has_nan ? 7u : rounded.code | (std::signbit(value) ? 8u : 0u);
    u8& byte = record.bytes[g * 8 + i / 2];
    byte = static_cast<u8>(i % 2 == 0 ? code : byte | (code << 4));
    bool& certain = record.certain[g * 8 + i / 2];
    const bool here = has_nan || (scale.certain && rounded.certain);
    certain = i % 2 == 0 ? here : certain && here;
  }
}

double widen(u16 bits) {
  const int exponent = (bits >> 7) & 0xff;
  const double fraction = (bits & 0x7f) / 128.0;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 255)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -126) : std::ldexp(1 + fraction, exponent - 127));
}

/// a * b + c * d, and how far fp32 may be from it.
Value sum_of_products(double a, double b, double c, double d) {
  const double value = a * b + c * d;
  // Beyond what fp32 can hold, the kernel's result is an infinity.
  if (std::fabs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    return {std::copysign(std::numeric_limits<double>::infinity(), value), 0};
  const double terms = std::fabs(a * b) + std::fabs(c * d);
  if (!std::isfinite(terms) || terms == 0) return {value, 0};
  // The second part is for products below fp32's normal range.
  return {value, std::ldexp(terms, -22) + std::ldexp(1, -147)};
}

}  // namespace

ReferenceRecord reference_record(Record record, std::span<const u16> row,
                                 std::span<const float> cos_sin) {
  std::array<Value, dsv41::kHeadDim> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = {widen(row[i]), 0};
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    const double even = values[kFirstRope + 2 * pair].value;
    const double odd = values[kFirstRope + 2 * pair + 1].value;
    const double cosine = static_cast<double>(cos_sin[pair]);
    const double sine = static_cast<double>(cos_sin[kPairs + pair]);
    values[kFirstRope + 2 * pair] = sum_of_products(even, cosine, -odd, sine);
    values[kFirstRope + 2 * pair + 1] = sum_of_products(odd, cosine, even, sine);
  }
  ReferenceRecord result;
  const std::size_t group = dsv41::scale_elements(record);
  for (std::size_t g = 0; g < values.size() / group; ++g) {
    const std::span<const Value> members(values.data() + g * group, group);
    if (record == Record::fp8)
      reference_fp8(members, g, result);
    else
      reference_nvfp4(members, g, result);
  }
  return result;
}

}  // namespace kiln::kernels::dsv41_kv_insert
