// Kimi-K3 MLA on the device over rows that are too long for the reference in double: against the
// reference in fp32, which is checked first. With what the accuracy of long rows hangs by, each
// taken out once to see its test fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kimi_k3_mla/reference.hpp"
#include "kernel_src/shared/bf16.hpp"
#include "tests/gpu/kimi_k3_mla_with_reference.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

class KimiK3MlaLongGpu : public KimiK3MlaWithReference {
 protected:
  static void check_row(const Programmed& programmed, LongCache& cache, const LongRow& row);
  /// The published rows whose names start so.
  static void check_rows(std::initializer_list<std::string_view> kinds, std::size_t count);
};

TEST_F(KimiK3MlaLongGpu, TheDeviceReferenceIsTheReferenceInDouble) {
  std::vector<Choices> shapes = {
      {.heads = 12, .lengths = {1, 200, 64}},
      {.heads = 1, .lengths = {1025, 3}},
      {.heads = 7, .lengths = {1000, 128, 127}, .queries = {2, 1, 3}, .row_gap_bytes = 16},
      {.heads = 3, .lengths = {2000, 640, 90}, .queries = {4, 2, 1}, .page_gap_bytes = 48},
      {.heads = 5, .lengths = {1024, 300}, .queries = {5, 5}, .packed = false},
      {.heads = 2, .lengths = {513, 100}, .queries = {2, 1}, .table_gap = 5, .spare_tokens = 2},
      {.heads = 2, .lengths = {0, 5, 130, 64}, .queries = {1, 8, 0, 3}, .output_scale = 0.5f},
      {.heads = 2, .lengths = {9000}},
  };
  for (const Profile profile :
       {Profile::peaked, Profile::flat, Profile::sink_key, Profile::rising, Profile::mild_sink})
    shapes.push_back({.heads = 4, .lengths = {700, 3000}, .profile = profile});
  for (const Choices& choices : shapes) {
    SCOPED_TRACE(std::to_string(choices.heads) + " heads, first length " +
                 std::to_string(choices.lengths[0]));
    HostCall host = make_call(choices, 21);
    const auto on_host = check(host.arguments());
    ASSERT_TRUE(on_host) << message_of(on_host);
    const Output want = reference(*on_host);
    DeviceCall device(*driver_, host, 0);
    const auto call = check(device.arguments);
    ASSERT_TRUE(call) << message_of(call);
    const auto got = reference_->values_of(*call, every(host.written() * choices.heads, 1));
    ASSERT_TRUE(got) << message_of(got);
    ASSERT_EQ(got->size(), want.values.size());
    double largest = 0;
    for (std::size_t i = 0; i < got->size(); ++i)
      largest = std::max(largest, std::fabs(static_cast<double>((*got)[i]) - want.values[i]) /
                                      (1 + std::fabs(want.values[i])));
    EXPECT_LE(largest, 1e-4);
  }
}

TEST_F(KimiK3MlaLongGpu, TheDeviceReferenceDecodesEveryCode) {
  HostCall host = make_call({.heads = 1, .lengths = {1, 2}}, 22);
  // One key, so that it is what comes out: every code twice, but for NaN.
  u8* key = host.key_at(0, 0);
  for (u32 dim = 0; dim < kLatentDim; ++dim) {
    const u32 code = (dim + dim / 256) % 256;
    key[dim] = static_cast<u8>((code & 0x7f) == kE4m3Nan ? 0 : code);
  }
  host.key_at(1, 1)[511] = 0xff;
  DeviceCall device(*driver_, host, 0);
  const auto call = check(device.arguments);
  ASSERT_TRUE(call) << message_of(call);
  const auto got = reference_->values_of(*call, std::vector<u32>{0, 1});
  ASSERT_TRUE(got) << message_of(got);
  for (u32 dim = 0; dim < kLatentDim; ++dim) {
    EXPECT_EQ((*got)[dim], float_of_e4m3(key[dim])) << dim;
    EXPECT_TRUE(std::isnan((*got)[kLatentDim + dim])) << "the row that sees a NaN";
  }
}

TEST_F(KimiK3MlaLongGpu, TheDeviceReferenceCountsWhatIsWrong) {
  HostCall host = make_call({.heads = 3, .lengths = {300, 70}, .key_scale = 0.5f}, 23);
  const auto on_host = check(host.arguments());
  ASSERT_TRUE(on_host) << message_of(on_host);
  std::vector<u16> right = bf16_of(reference(*on_host));
  DeviceCall device(*driver_, host, 0);
  const auto call = check(device.arguments);
  ASSERT_TRUE(call) << message_of(call);
  const auto rows = every(6, 1);
  EXPECT_EQ(errors_in(*call, rows).mismatches, 6 * kLatentDim) << "an output of NaN";
  device.output.assign(right);
  expect_contract(errors_in(*call, rows), 0.003);
  right[2 * kLatentDim + 511] = bf16_of_float(5);
  right[5 * kLatentDim] = 0x7fc0;
  device.output.assign(right);
  Errors errors = errors_in(*call, rows);
  EXPECT_EQ(errors.mismatches, 2u);
  EXPECT_FALSE(errors.finite);
  EXPECT_GT(errors.largest, 3);
  EXPECT_GT(errors.relative_l2, 0.1);
  errors = errors_in(*call, {0, 1, 3, 4});
  EXPECT_EQ(errors.mismatches, 0u) << "rows that were not asked for count";
}

// All outputs of a published row. Up to 256 of its packed rows have a key of their own, 60 octaves
// above all others, somewhere among those that they see: a page that is left out or taken for
// another shows there. The others are what a model gives.
void KimiK3MlaLongGpu::check_row(const Programmed& programmed, LongCache& cache,
                                 const LongRow& row) {
  static const auto codes = random_codes(kCodes, -kUnit, kUnit, 32);
  const auto made = DeviceRow::make(*driver_, cache, row, codes, kSmCount);
  ASSERT_TRUE(made) << message_of(made);
  SCOPED_TRACE(std::string(row.name) + ", row tile " + std::to_string(made->plan.row_tile) + ", " +
               std::to_string(made->plan.num_split) + " splits");
  std::vector<u32> peaked, others;
  const u64 step = std::max<u64>(2, row.rows() / 256 / 2 * 2);
  for (u64 packed = 0; packed < row.rows(); ++packed) {
    (packed % step == 1 ? peaked : others).push_back(static_cast<u32>(packed));
    if (packed % step != 1) continue;
    const u64 token = packed / row.heads;
    const u64 seen = row.keys - row.query + token % row.query + 1;
    made->write_key(cache, token / row.query, packed * 2654435761u % seen,
                    made->query.data() + packed * kKeyDim);
  }
  launch(programmed, made->arguments, made->plan);
  expect_contract(errors_in(made->call, peaked), 0.01);
  const Errors errors = errors_in(made->call, others);
  // One term of P has three bits of mantissa, and its errors a tail: one output in ten million may
  // be a little beyond the contract. Of 25 million of prefill_h12_b4_q1024 one is, by 0.0107.
  const bool two_terms = attend::weight_terms(made->plan.row_tile) == 2;
  expect_contract(errors, most_l2(made->plan.row_tile),
                  two_terms ? 0 : others.size() * kLatentDim / 10'000'000);
  RecordProperty(std::string(row.name) + "_mismatches", std::to_string(errors.mismatches));
  RecordProperty(std::string(row.name) + "_largest", std::to_string(errors.largest));
  RecordProperty(std::string(row.name) + "_relative_l2", std::to_string(errors.relative_l2));
}

void KimiK3MlaLongGpu::check_rows(std::initializer_list<std::string_view> kinds,
                                  std::size_t count) {
  std::vector<LongRow> rows;
  for (const LongRow& row : kLongRows)
    for (const std::string_view kind : kinds)
      if (std::string_view(row.name).starts_with(kind)) rows.push_back(row);
  ASSERT_EQ(rows.size(), count);
  LongCache cache(*driver_, rows, random_codes(kCodes, -kUnit, kUnit, 31));
  for (const LongRow& row : rows) check_row(*programmed_, cache, row);
}

TEST_F(KimiK3MlaLongGpu, IsTheReferenceInAllOutputsOfThePublishedDecodeRows) {
  check_rows({"trace", "mirror"}, 16);
}
TEST_F(KimiK3MlaLongGpu, IsTheReferenceInAllOutputsOfTheRowsOfSeveralNewTokens) {
  check_rows({"mtp"}, 8);
}
TEST_F(KimiK3MlaLongGpu, IsTheReferenceInAllOutputsOfThePrefillRows) {
  check_rows({"prefill"}, 5);
}

TEST_F(KimiK3MlaLongGpu, IsTheReferenceWithTheProductsForEveryArchitecture) {
  const auto portable = open(
      kEverything, [](Runtime& runtime) { return add_sources_of(runtime, BackEnd::portable); });
  ASSERT_NE(portable, nullptr);
  const std::vector<LongRow> rows = {{"trace_h12_b1", 12, 1, 1, 76800},
                                     {"mirror_h96_b1", 96, 1, 1, 76800},
                                     {"mtp_h12_b1_q4", 12, 1, 4, 76800},
                                     {"prefill_h12_b1_q64", 12, 1, 64, 32768}};
  LongCache cache(*driver_, rows, random_codes(kCodes, -kUnit, kUnit, 33));
  for (const LongRow& row : rows) check_row(*portable, cache, row);
}

// R14. The published form holds its reference further above the maximum from 32,768 keys on; this
// one has no such length, and must be right on both sides of it.
TEST_F(KimiK3MlaLongGpu, IsTheReferenceOnBothSidesOf32768Keys) {
  struct Case {
    u32 heads;
    std::int32_t query;
  };
  for (const std::int32_t keys : {32767, 32768})
    for (const auto& [heads, query] :
         {Case{12, 1}, Case{12, 2}, Case{12, 4}, Case{12, 5}, Case{96, 1}, Case{96, 2}})
      for (const u32 split : {0u, 1u})
        for (const Profile profile : {Profile::random, Profile::peaked}) {
          HostCall host = make_call({.heads = heads,
                                     .lengths = {keys},
                                     .queries = {query},
                                     .profile = profile,
                                     .split = split},
                                    24);
          SCOPED_TRACE(std::to_string(keys) + " keys, " + std::to_string(heads) + " heads, " +
                       std::to_string(query) + " new tokens, split " + std::to_string(split));
          expect_contract(errors_of(*programmed_, host, kSoftmaxScale), 0.025);
        }
}

/// 13 octaves under their first key, which has no values, lie all others, which have: together they
/// weigh three times as much.
HostCall crowd(u32 heads, std::int32_t keys) {
  HostCall host =
      make_call({.heads = heads, .lengths = {keys}, .profile = Profile::mild_sink, .split = 1}, 25);
  std::fill_n(host.key_at(0, 0) + kLatentDim, kRopeDim, static_cast<u8>(e4m3_of_float(2)));
  return host;
}

TEST_F(KimiK3MlaLongGpu, CountsACrowdFarBelowASinkAndWithSevenOctavesToTheReferenceItIsLost) {
  for (const std::int32_t keys : {32767, 32768})
    for (const u32 heads : {12u, 24u, 48u, 64u, 96u}) {
      HostCall host = crowd(heads, keys);
      SCOPED_TRACE(std::to_string(keys) + " keys, " + std::to_string(heads) + " heads");
      expect_contract(errors_of(*programmed_, host, kSoftmaxScale), 0.025);
    }
  const auto seven = changed(kSevenOctaves);
  ASSERT_NE(seven, nullptr);
  HostCall host = crowd(48, 32768);
  EXPECT_EQ(errors_of(*seven, host, kSoftmaxScale).mismatches, 48 * kLatentDim);
}

// R14a. Weights and values of one sign over a long row: what the matrix units drop of each product
// is all of one sign too.
TEST_F(KimiK3MlaLongGpu, DoesNotDriftOverManyEqualWeightsAndWouldIfSumsStayedInTheMatrixUnits) {
  const LongRow longest{"flat", 96, 1, 1, 342305};
  LongCache cache(*driver_, std::vector<LongRow>{longest}, random_codes(kCodes, 0.5f, 1.5f, 34));
  const auto codes = random_codes(kCodes, -0.03f, 0.03f, 35);
  const auto drifting = changed(kSumsStayInTheMatrixUnits);
  ASSERT_NE(drifting, nullptr);
  for (const u32 heads : {12u, 48u, 96u})
    for (const u32 split : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(heads) + " heads, split " + std::to_string(split));
      LongRow row = longest;
      row.heads = heads;
      const auto made = DeviceRow::make(*driver_, cache, row, codes, kSmCount, split);
      ASSERT_TRUE(made) << message_of(made);
      launch(*programmed_, made->arguments, made->plan);
      expect_contract(errors_in(made->call, every(row.rows(), 1)), 0.02);
      if (heads != 48 || split != 1) continue;
      launch(*drifting, made->arguments, made->plan);
      EXPECT_GT(errors_in(made->call, every(row.rows(), 1)).mismatches, 0u);
    }
}

/// Each row has four keys of its own, some 30 octaves above all others and a few apart: twice the
/// row in a quarter of the dims each.
HostCall rivals(u32 heads) {
  HostCall host = make_call({.heads = heads, .lengths = {5000}, .split = 1}, 28);
  for (u32 row = 0; row < heads; ++row)
    for (u32 quarter = 0; quarter < 4; ++quarter) {
      u8* key = host.key_at(0, (row * 4 + quarter) * 2654435761u % 5000);
      for (u32 dim = quarter * kKeyDim / 4; dim < (quarter + 1) * kKeyDim / 4; ++dim)
        key[dim] =
            static_cast<u8>(e4m3_of_float(2 * float_of_e4m3(host.query[row * kKeyDim + dim])));
    }
  return host;
}

// R14b. The matrix units add up a score too, 18 products long: what that costs against sums in
// fp32 of each 128 dims, where large scores are few octaves apart and weights have two terms.
TEST_F(KimiK3MlaLongGpu, AddsUpScoresInTheMatrixUnits) {
  const auto by_parts = changed(kScoresOf128Dims);
  ASSERT_NE(by_parts, nullptr);
  HostCall host = rivals(12);
  for (const auto* programmed : {programmed_.get(), by_parts.get()}) {
    const Errors errors = errors_of(*programmed, host, kSoftmaxScale);
    const std::string name = programmed == by_parts.get() ? "by_parts" : "at_once";
    RecordProperty(name + "_largest", std::to_string(errors.largest));
    RecordProperty(name + "_relative_l2", std::to_string(errors.relative_l2));
    EXPECT_TRUE(errors.finite);
    EXPECT_LE(errors.largest, 0.1);
    EXPECT_LE(errors.relative_l2, 0.05);
  }
}

constexpr float kSixteenth = static_cast<float>(std::numbers::ln2 / 16);  // of a score, in octaves

/// Scores of head h rise by 2^-(h % 4) / 2 octaves a tile, those of each fourth not at all.
HostCall rising_by_tiles(u32 heads, std::int32_t tiles, u32 split) {
  HostCall host = make_call(
      {.heads = heads, .lengths = {tiles * static_cast<std::int32_t>(kTileKeys)}, .split = split},
      26);
  const auto code = [](u32 number) {
    return static_cast<u8>(e4m3_of_float(static_cast<float>(number)));
  };
  // 8 * tile as a sum of products that E4M3 holds: 8 * its lowest digit, 128 * the others.
  for (std::int32_t key = 0; key < host.lengths[0]; ++key) {
    u8* rope = host.key_at(0, static_cast<std::size_t>(key)) + kLatentDim;
    std::fill_n(rope, kRopeDim, u8{0});
    const u32 tile = static_cast<u32>(key) / kTileKeys;
    rope[0] = code(tile % 16);
    u32 rest = tile / 16;
    for (u32 dim = 1; rest != 0; ++dim) {
      rope[dim] = code(std::min(rest, 15u));
      rest -= std::min(rest, 15u);
    }
  }
  for (u32 head = 0; head < heads; ++head) {
    u8* row = host.query.data() + head * kKeyDim;
    std::fill_n(row, kKeyDim, u8{0});
    if (head % 4 == 3) continue;
    row[kLatentDim] = code(8 >> head % 4);
    std::fill_n(row + kLatentDim + 1, 8, code(128 >> head % 4));
  }
  return host;
}

// R15, long: some 500 octaves in all, the reference set anew all the way.
TEST_F(KimiK3MlaLongGpu, FollowsScoresThatRiseByHalfAnOctaveATileForAThousandTiles) {
  for (const u32 heads : {12u, 24u, 48u, 64u, 96u})
    for (const u32 split : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(heads) + " heads, split " + std::to_string(split));
      HostCall host = rising_by_tiles(heads, 1000, split);
      expect_contract(errors_of(*programmed_, host, kSixteenth), 0.05);
    }
  const auto saturating = changed(kReferencesStay);
  ASSERT_NE(saturating, nullptr);
  HostCall host = rising_by_tiles(48, 1000, 1);
  EXPECT_GT(errors_of(*saturating, host, kSixteenth).mismatches, 1000u);
}

/// Requests of two tiles of equal scores; in the second tile one key, with large values, is `over`
/// sixteenths of an octave above.
HostCall over_the_reference(u32 heads, std::initializer_list<float> over) {
  Choices choices{.heads = heads, .lengths = {}, .split = 1};  // or each tile is one of its own
  choices.lengths.assign(over.size(), 2 * static_cast<std::int32_t>(kTileKeys));
  HostCall host = make_call(choices, 27);
  const auto code = [](float number) { return static_cast<u8>(e4m3_of_float(number)); };
  std::size_t request = 0;
  for (float rest : over) {
    for (std::size_t key = 0; key < 2 * kTileKeys; ++key)
      std::fill_n(host.key_at(request, key) + kLatentDim, kRopeDim, u8{0});
    u8* key = host.key_at(request, kTileKeys + 17);
    std::fill_n(key, kLatentDim, code(8));
    for (u32 dim = kLatentDim; rest != 0; ++dim) {
      // What E4M3 holds of it, from below.
      float part = float_of_e4m3(e4m3_of_float(rest));
      if (part > rest) part = float_of_e4m3(e4m3_of_float(rest) - 1);
      key[dim] = code(part);
      rest -= part;
    }
    ++request;
  }
  for (std::size_t row = 0; row < over.size() * heads; ++row) {
    u8* query = host.query.data() + row * kKeyDim;
    std::fill_n(query, kLatentDim, u8{0});
    std::fill_n(query + kLatentDim, kRopeDim, code(1));
  }
  return host;
}

// R15, short: a weight is 2^6 at its reference, so 2.8 octaves above it is 448, and E4M3 has no
// more.
TEST_F(KimiK3MlaLongGpu, IsRightWhereAWeightIsTheLargestThatE4m3HoldsAndJustAbove) {
  const auto over = {44.0f, 44.75f, 44.8125f, 45.0f, 46.0f, 48.0f, 56.0f, 96.0f};
  for (const u32 heads : {12u, 24u, 48u, 64u, 96u}) {
    SCOPED_TRACE(heads);
    HostCall host = over_the_reference(heads, over);
    expect_contract(errors_of(*programmed_, host, kSixteenth), 0.05);
  }
  const auto saturating = changed(kReferencesStay);
  ASSERT_NE(saturating, nullptr);
  HostCall host = over_the_reference(48, over);
  EXPECT_GT(errors_of(*saturating, host, kSixteenth).mismatches, 0u);
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
