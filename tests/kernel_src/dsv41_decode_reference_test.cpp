// The reference of sparse decode attention against facts known by hand, the output's layout, the
// key checks, and what the inputs of all its tests promise.
#include "kernel_src/dsv41_decode/reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernel_src/dsv41_decode_inputs.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A record whose numbers are known without decoding it.
struct Known {
  std::vector<u8> bytes{};
  std::array<double, 512> values{};
};

Known known(Record record, std::size_t turn) {
  constexpr std::array<double, 8> numbers = {1, 2, 0.5, -1, 3, 0, 4, -4};
  constexpr std::array<u8, 8> e4m3 = {0x38, 0x40, 0x30, 0xb8, 0x44, 0x00, 0x48, 0xc8};
  constexpr std::array<u8, 8> e2m1 = {0x2, 0x4, 0x1, 0xa, 0x5, 0x0, 0x6, 0xe};
  Known known{.bytes = std::vector<u8>(record == Record::fp8 ? 528 : 288, 0)};
  for (std::size_t i = 0; i < 512; ++i) {
    const std::size_t n = (i * 3 + i / 32 + turn) % 8;
    if (record == Record::fp8) {
      known.bytes[i] = e4m3[n];
      known.bytes[512 + i / 32] = static_cast<u8>(120 + i / 32);
      known.values[i] = std::ldexp(numbers[n], static_cast<int>(i / 32) - 7);
    } else {
      u8& byte = known.bytes[i / 2];
      byte = static_cast<u8>(byte | (i % 2 == 0 ? e2m1[n] : e2m1[n] << 4));
      known.bytes[256 + i / 16] = i / 16 % 2 == 0 ? 0x38 : 0x40;
      known.values[i] = numbers[n] * (i / 16 % 2 == 0 ? 1 : 2);
    }
  }
  return known;
}

constexpr std::size_t kUpright = 0;      // the position that rotates by nothing
constexpr std::size_t kQuarterTurn = 1;  // and one where cos is 0 and sin 1

/// One token, eight heads, lists of four that are empty, a query of zeros, no sinks.
HostCall small_call(Record record = Record::nvfp4) {
  const Key key{.heads = 8,
                .swa_slots = 4,
                .compressed_slots = 4,
                .record = record,
                .swa_page_slots = 2,
                .page_slots = 2};
  HostCall call = make_call({.key = key, .lengths = Lengths::none, .sinks = Sinks::null}, 3);
  call.positions = {kUpright};
  std::fill_n(call.cos_sin.begin() + 64, 32, 0.0f);
  std::fill_n(call.cos_sin.begin() + 96, 32, 1.0f);
  std::fill(call.query.begin(), call.query.end(), u16{0});
  return call;
}

/// Puts a record into the cache and its slot behind the list of the only token.
void append(HostList& list, const Known& record) {
  const auto n = static_cast<std::size_t>(list.lengths[0]++);
  const auto slot = static_cast<std::size_t>(list.written[n]);
  std::copy(record.bytes.begin(), record.bytes.end(), list.record_at(slot).begin());
  list.slots[n] = static_cast<std::int32_t>(slot);
}

std::vector<double> head_of(HostCall& call, std::size_t head = 0, std::size_t token = 0) {
  const Output output = reference(call.key, call.arguments());
  const auto values = output.of(token, head);
  return {values.begin(), values.end()};
}

TEST(DecodeReference, OneValidSlotGivesItsRecordTurnedBack) {
  for (const Record record : {Record::fp8, Record::nvfp4})
    for (const bool in_swa : {true, false}) {
      if (in_swa && record == Record::nvfp4) continue;
      const Known one = known(record, 0);
      HostCall call = small_call(record);
      append(in_swa ? call.swa : call.compressed, one);
      call.query_at(0, 0, 17) = 0x4120;  // 10: any score is the largest
      EXPECT_EQ(largest_error(head_of(call), one.values), 0);
      EXPECT_EQ(largest_error(head_of(call, 7), one.values), 0);
      call.positions = {kQuarterTurn};
      const auto turned = head_of(call);
      for (std::size_t i = 0; i < 448; ++i) ASSERT_EQ(turned[i], one.values[i]) << i;
      for (std::size_t i = 448; i < 512; i += 2) {
        ASSERT_EQ(turned[i], one.values[i + 1]) << i;
        ASSERT_EQ(turned[i + 1], -one.values[i]) << i;
      }
    }
}

TEST(DecodeReference, EqualScoresAverageBothCachesAndASlotListedTwiceCountsTwice) {
  HostCall call = small_call(Record::nvfp4);
  const Known a = known(Record::fp8, 0);
  const Known b = known(Record::nvfp4, 5);
  append(call.swa, a);
  append(call.swa, a);
  EXPECT_EQ(largest_error(head_of(call), a.values), 0);
  append(call.compressed, b);
  std::array<double, 512> want{};
  for (std::size_t i = 0; i < 512; ++i) want[i] = (2 * a.values[i] + b.values[i]) / 3;
  EXPECT_LT(largest_error(head_of(call), want), 1e-13);
  call.swa.slots[1] = call.swa.slots[0];
  EXPECT_LT(largest_error(head_of(call), want), 1e-13);
}

TEST(DecodeReference, ScoresAreScaledDotProducts) {
  const Known a = known(Record::fp8, 0);
  const Known b = known(Record::fp8, 3);
  HostCall call = small_call();
  append(call.swa, a);
  append(call.swa, b);
  ASSERT_EQ(a.values[256], 2);
  ASSERT_EQ(b.values[256], -2);
  call.query_at(0, 2, 256) = 0x4180;     // 16: the scores differ by 64 / sqrt(512) = 2 * sqrt(2)
  const double weight = 0.944192780792;  // 1 / (1 + exp(-2 * sqrt(2)))
  const auto got = head_of(call, 2);
  for (std::size_t i = 0; i < 512; ++i)
    ASSERT_NEAR(got[i], weight * a.values[i] + (1 - weight) * b.values[i],
                1e-9 * std::fabs(a.values[i] - b.values[i]))
        << i;
  EXPECT_EQ(head_of(call, 1)[256], 0) << "other heads have queries of their own";
}

TEST(DecodeReference, TheQueryIsTurnedInFp32AndRoundedToBf16) {
  HostCall call = small_call();
  Known a = known(Record::fp8, 0);
  Known b = known(Record::fp8, 0);
  std::fill(a.bytes.begin(), a.bytes.begin() + 512, u8{0});
  std::fill(b.bytes.begin(), b.bytes.begin() + 512, u8{0});
  a.bytes[448] = 0x38;  // 1 * 2^7 in an even dim, and nowhere else
  b.bytes[449] = 0x38;  // in the odd dim beside it
  b.bytes[0] = 0x38;    // what tells the rows apart in the output: 2^-7
  append(call.swa, a);
  append(call.swa, b);
  call.positions = {kQuarterTurn};
  call.query_at(0, 0, 448) = 0x3f80;  // 1
  // (1, 0) turned by a quarter is (0, 1): all of the score goes to b.
  const double all = std::exp(128 / std::sqrt(512.0));
  EXPECT_NEAR(head_of(call)[0], std::ldexp(all / (1 + all), -7), 1e-12);
  // cos 1 + 2^-10 is no bf16 number; 1 * cos is rounded to 1, sin 3 * 2^-9 is kept.
  call.cos_sin[64] = 1 + 0x1p-10f;
  call.cos_sin[96] = 3 * 0x1p-9f;
  const double less = std::exp(128 * (3 * 0x1p-9 - 1) / std::sqrt(512.0));
  EXPECT_NEAR(head_of(call)[0], std::ldexp(less / (1 + less), -7), 1e-12);
  // 1 + 2^-8 lies halfway and goes to the even one, 1; 1 + 3 * 2^-8 to 1 + 2^-6.
  call.cos_sin[64] = 1 + 3 * 0x1p-8f;
  const double more = std::exp(128 * (3 * 0x1p-9 - 1 - 0x1p-6) / std::sqrt(512.0));
  EXPECT_NEAR(head_of(call)[0], std::ldexp(more / (1 + more), -7), 1e-12);
}

TEST(DecodeReference, TheSinkIsAKeyWithoutAValue) {
  HostCall call = small_call();
  const Known a = known(Record::fp8, 2);
  append(call.swa, a);
  append(call.swa, a);
  // Scores 0 and 0, so the denominator is 2 + exp(sink).
  call.sinks = {0.0f, std::log(2.0f), std::log(6.0f), -kInfinity, kInfinity, kNan, -1e30f, 1e30f};
  const std::array<double, 8> factors = {2.0 / 3, 0.5, 0.25, 1, 0, 0, 1, 0};
  for (std::size_t head = 0; head < 8; ++head) {
    const auto got = head_of(call, head);
    for (std::size_t i = 0; i < 512; ++i) {
      if (head == 5) {
        ASSERT_TRUE(std::isnan(got[i]));
      } else {
        ASSERT_NEAR(got[i], factors[head] * a.values[i], 1e-6 * std::fabs(a.values[i])) << head;
      }
    }
  }
  // A record of zeros scores 0 as well: the same as the sink 0 of head 0, before it is added.
  const auto with_sink = head_of(call, 0);
  Known zero = a;
  std::fill(zero.bytes.begin(), zero.bytes.begin() + 512, u8{0x80});
  append(call.swa, zero);
  EXPECT_LT(largest_error(head_of(call, 3), with_sink), 1e-13);
  call.sinks.clear();
  EXPECT_LT(largest_error(head_of(call, 0), with_sink), 1e-13);
}

TEST(DecodeReference, WithoutAValidEntryTheOutputIsZeroAndItsScale105) {
  for (const bool listed : {false, true}) {
    HostCall call = small_call();
    call.sinks = {0.0f, -kInfinity, kInfinity, 5.0f, -5.0f, 1e30f, kNan, 0.0f};
    if (listed) {
      call.swa.slots = {-1, static_cast<std::int32_t>(call.swa.pages * 2), -7, 1 << 30};
      call.swa.lengths = {4};
    }
    const Output output = reference(call.key, call.arguments());
    encode_output(call.key, call.arguments(), output.values);
    for (std::size_t head = 0; head < 8; ++head) {
      if (head == 6) {
        EXPECT_TRUE(std::isnan(output.of(0, head)[0])) << "a NaN sink shows even here";
        continue;
      }
      for (const double value : output.of(0, head)) ASSERT_EQ(value, 0) << head;
      for (std::size_t chunk = 0; chunk < 16; ++chunk) {
        const std::size_t block = chunk * 8 + head;
        EXPECT_EQ(call.output[block * 32] & 0x7f, 0);
        EXPECT_EQ(call.output_scales[block / 4 * call.scale_column_stride * 4 + block % 4], 105);
      }
    }
  }
}

TEST(DecodeReference, EntriesBehindTheLengthAndSkippedIdsChangeNothing) {
  HostCall call = small_call();
  const Known a = known(Record::fp8, 1);
  append(call.swa, a);
  const auto slot = call.swa.slots[0];
  const auto behind = static_cast<std::int32_t>(call.swa.pages * 2);
  struct Row {
    std::vector<std::int32_t> slots;
    std::int32_t length;
  };
  for (const auto& [slots, length] :
       {Row{{slot, 1 << 30, behind, -1}, 1}, Row{{-1, -5, slot, behind}, 4},
        Row{{behind, 0x7fffffff, std::numeric_limits<std::int32_t>::min(), slot}, 1000}}) {
    call.swa.slots = slots;
    call.swa.lengths = {length};
    EXPECT_EQ(largest_error(head_of(call), a.values), 0) << length;
  }
  call.swa.lengths = {-4};
  EXPECT_EQ(head_of(call)[0], 0);
}

TEST(DecodeReference, ListsWithoutACompressedCacheNeedNone) {
  HostCall call = make_call({.key = {.heads = 4, .swa_slots = 70, .compressed_slots = 0}}, 11);
  const Arguments arguments = call.arguments();
  EXPECT_EQ(arguments.compressed_slots, nullptr);
  EXPECT_GT(std::fabs(reference(call.key, arguments).values[0]), 0);
}

TEST(DecodeReference, TheOrderOfAListDoesNotMatter) {
  for (const Profile profile : {Profile::random, Profile::peaked, Profile::flat}) {
    HostCall call =
        make_call({.key = {.record = Record::nvfp4}, .tokens = 2, .profile = profile}, 21);
    const Output before = reference(call.key, call.arguments());
    std::reverse(call.swa.slots.begin(), call.swa.slots.begin() + 128);
    std::rotate(call.compressed.slots.begin(), call.compressed.slots.begin() + 100,
                call.compressed.slots.begin() + 512);
    const Output after = reference(call.key, call.arguments());
    EXPECT_LT(relative_frobenius(after.values, before.values), 1e-13);
    EXPECT_GT(relative_frobenius(after.of(0, 0), before.of(1, 0)), 0.05) << "tokens differ";
  }
}

TEST(DecodeReference, NanInAValidRecordReachesEveryDimOfItsTokenOnly) {
  for (const bool in_swa : {true, false}) {
    HostCall call = make_call({.key = {.heads = 8, .record = Record::nvfp4}, .tokens = 2}, 23);
    HostList& list = in_swa ? call.swa : call.compressed;
    const auto slot = list.slots[5];
    std::replace(list.slots.begin() + static_cast<std::ptrdiff_t>(list.width), list.slots.end(),
                 slot, -1);
    list.record_at(static_cast<std::size_t>(slot))[in_swa ? 512 + 9 : 256 + 9] = 0xff;
    const Output output = reference(call.key, call.arguments());
    for (std::size_t head = 0; head < 8; ++head) {
      for (const double value : output.of(0, head)) ASSERT_TRUE(std::isnan(value));
      for (const double value : output.of(1, head)) ASSERT_FALSE(std::isnan(value));
    }
  }
}

TEST(DecodeRecord, Fp8DecodesEveryCodeByEveryScale) {
  for (unsigned scale = 0; scale < 256; ++scale) {
    std::array<u8, 528> bytes{};
    for (std::size_t i = 0; i < 512; ++i) bytes[i] = static_cast<u8>(i);
    bytes[512 + scale % 16] = static_cast<u8>(scale);
    const auto got = decode_record(Record::fp8, bytes);
    for (std::size_t i = scale % 16 * 32; i < scale % 16 * 32 + 32; ++i) {
      const int magnitude = static_cast<int>(i & 127);
      double want = magnitude < 8 ? std::ldexp(magnitude, -9)
                                  : std::ldexp(8 + magnitude % 8, magnitude / 8 - 10);
      EXPECT_TRUE(magnitude != 127 || want == 480);
      want = std::ldexp((i & 128) != 0 ? -want : want, static_cast<int>(scale) - 127);
      if (scale <= 166)
        ASSERT_EQ(got[i], want) << scale << " " << i;
      else
        ASSERT_TRUE(std::isnan(got[i])) << scale << " " << i;
    }
    // A group beside it keeps its own scale, code 0: there E4M3's 2^e of code 8 * (e + 7).
    const std::size_t other = (scale + 1) % 16 * 32 + 8;
    ASSERT_EQ(std::fabs(got[other]), std::ldexp(1, static_cast<int>(other % 128) / 8 - 7 - 127));
  }
}

TEST(DecodeRecord, Nvfp4DecodesEveryCodeByEveryScale) {
  constexpr std::array<double, 8> magnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (unsigned scale = 0; scale < 256; ++scale) {
    std::array<u8, 288> bytes{};
    const std::size_t group = scale % 32;
    for (std::size_t i = 0; i < 8; ++i) bytes[group * 8 + i] = static_cast<u8>(0x10 + i * 0x22);
    bytes[256 + group] = static_cast<u8>(scale);
    const auto got = decode_record(Record::nvfp4, bytes);
    const int code = static_cast<int>(scale & 127);
    const double factor =
        (code < 8 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, code / 8 - 10)) *
        (scale < 128 ? 1 : -1);
    // Byte i holds the codes 2i (low) and 2i + 1 (high), so element and code are the same number.
    for (std::size_t n = 0; n < 16; ++n) {
      const double want = factor * (n < 8 ? magnitudes[n] : -magnitudes[n - 8]);
      if (code == 127)
        ASSERT_TRUE(std::isnan(got[group * 16 + n]));
      else
        ASSERT_EQ(got[group * 16 + n], want) << scale << " " << n;
    }
  }
}

TEST(DecodeRecord, ReadsWhatTheCacheWriterWrites) {
  for (const Record record : {Record::fp8, Record::nvfp4}) {
    dsv41_kv_insert::test::Inputs inputs(5);
    std::array<u16, 512> row{};
    std::array<float, 64> upright{};
    std::fill_n(upright.begin(), 32, 1.0f);
    inputs.fill_row(dsv41_kv_insert::test::Profile::normal, row.data());
    std::vector<u8> bytes(dsv41::record_bytes(record));
    dsv41_kv_insert::model_record(record, row, upright, bytes);
    const auto got = decode_record(record, bytes);
    // Half a step of the format at its group's largest number, which is below 4.
    const double bound = record == Record::fp8 ? 0.125 : 0.75;
    for (std::size_t i = 0; i < 512; ++i) {
      const double want = static_cast<double>(std::bit_cast<float>(static_cast<u32>(row[i]) << 16));
      ASSERT_LE(std::fabs(got[i] - want), bound) << i;
      ASSERT_TRUE(got[i] == 0 || std::signbit(got[i]) == std::signbit(want)) << i;
    }
  }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
