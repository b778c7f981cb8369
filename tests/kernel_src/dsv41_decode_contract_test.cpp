// What sparse decode attention promises beside its numbers: which keys there are, where the bytes
// of an output lie and how they are rounded, and that the measures of error hide nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernel_src/dsv41_decode/reference.hpp"
#include "support/kernels.hpp"
#include "tests/kernel_src/dsv41_decode_inputs.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

using kiln::test::message_of;

TEST(DecodeOutput, BytesLieWhereTheContractSays) {
  // Head 11 is head 3 of group 1; dim 100 is dim 4 of chunk 3; so element (3*8 + 3)*32 + 4 = 868 of
  // the group's 4096, and block 27: column 6, byte 3.
  HostCall call =
      make_call({.key = {.heads = 16, .swa_slots = 1, .compressed_slots = 0}, .tokens = 3}, 31);
  call.output_stride = 40000;
  call.scale_column_stride = 4;
  call.scale_group_stride = 200;
  call.output.assign(3 * 40000, kOutputPattern);
  call.output_scales.assign(8 * 200 * 4, kOutputPattern);
  call.positions = {5, -1, 6};
  Output output{.heads = 16, .values = std::vector<double>(3 * 16 * 512)};
  output.values[(2 * 16 + 11) * 512 + 100] = -3.5;
  encode_output(call.key, call.arguments(), output.values);
  EXPECT_EQ(call.output[2 * 40000 + 4096 + 868], 0xfe) << "-448 * 2^-7";
  EXPECT_EQ(call.output_scales[(2 + 200 + 6 * 4) * 4 + 3], 120);
  std::size_t written = 0;
  for (std::size_t i = 0; i < call.output.size(); ++i) {
    const std::size_t token = i / 40000;
    const bool live = token != 1 && i % 40000 < 2 * 4096;
    ASSERT_EQ(call.output[i] == kOutputPattern, !live) << i;
    written += call.output[i] == 0 ? 1 : 0;
  }
  EXPECT_EQ(written, 2 * 16 * 512 - 1u);
  EXPECT_EQ(std::count(call.output_scales.begin(), call.output_scales.end(), 105), 2 * 16 * 16 - 1);
  EXPECT_EQ(std::count(call.output_scales.begin(), call.output_scales.end(), kOutputPattern),
            static_cast<std::ptrdiff_t>(call.output_scales.size() - 2 * 16 * 16));
  const Output back = decode_output(call.key, call.arguments());
  EXPECT_EQ(largest_error(back.values, output.values), 0);
}

TEST(DecodeOutput, FewerThanEightHeadsLeaveTheRestOfTheirGroup) {
  HostCall call = make_call({.key = {.heads = 2, .swa_slots = 1, .compressed_slots = 0}}, 32);
  encode_output(call.key, call.arguments(), std::vector<double>(2 * 512, 448.0));
  for (std::size_t i = 0; i < call.output.size(); ++i) {
    const bool live = i < 4096 && i / 32 % 8 < 2;
    ASSERT_EQ(call.output[i], live ? 0x7e : kOutputPattern) << i;
  }
}

TEST(DecodeOutput, TokensOutsideTheAngleTableAreNotWritten) {
  HostCall call = make_call({.key = {.heads = 8, .swa_slots = 8, .compressed_slots = 8},
                             .tokens = 5,
                             .bad_positions = true},
                            35);
  const auto beyond = static_cast<std::int64_t>(call.rope_positions);
  ASSERT_EQ(call.positions[1], -1);
  ASSERT_EQ(call.positions[3], beyond);
  call.positions[0] = beyond - 1;
  call.positions[4] = std::numeric_limits<std::int64_t>::max();
  const Output output = reference(call.key, call.arguments());
  encode_output(call.key, call.arguments(), output.values);
  const Output back = decode_output(call.key, call.arguments());
  for (std::size_t token = 0; token < 5; ++token) {
    const bool live = token == 0 || token == 2;
    EXPECT_EQ(output.of(token, 7)[9] != 0, live) << token;
    EXPECT_EQ(back.of(token, 7)[9] != 0, live) << token;
    const u8* bytes = call.output.data() + token * call.output_stride;
    EXPECT_EQ(std::count(bytes, bytes + 4096, kOutputPattern) < 1000, live) << token;
    EXPECT_EQ(call.output_scales[token * 4] != kOutputPattern, live) << token;
  }
}

TEST(DecodeOutput, ComesBackWithinHalfAStep) {
  HostCall call = make_call({.key = {.heads = 32, .record = Record::nvfp4},
                             .tokens = 2,
                             .output_gap_bytes = 64,
                             .scale_gap_words = 4},
                            33);
  const Output output = reference(call.key, call.arguments());
  encode_output(call.key, call.arguments(), output.values);
  const Output back = decode_output(call.key, call.arguments());
  for (std::size_t start = 0; start < output.values.size(); start += 32) {
    double amax = 0;
    for (std::size_t i = start; i < start + 32; ++i)
      amax = std::max(amax, std::fabs(output.values[i]));
    // E4M3 has three bits behind the point; its subnormal step is 2^-9, and its largest number is
    // at least half of what the scale holds.
    const double scale = amax / 224;
    for (std::size_t i = start; i < start + 32; ++i) {
      const double bound = std::max(std::fabs(output.values[i]) * 0x1p-4, scale * 0x1p-10);
      ASSERT_LE(std::fabs(back.values[i] - output.values[i]), bound * (1 + 1e-6)) << i;
    }
  }
  EXPECT_LT(relative_frobenius(back.values, output.values), 0.04);
  EXPECT_GT(relative_frobenius(back.values, output.values), 0.005);
}

TEST(DecodeOutput, ANanCostsItsOwnElementOnly) {
  HostCall call = make_call({.key = {.heads = 8, .swa_slots = 1, .compressed_slots = 0}}, 34);
  std::vector<double> values(8 * 512, 1.0);
  values[3] = -std::numeric_limits<double>::quiet_NaN();
  std::fill_n(values.begin() + 32, 32, std::numeric_limits<double>::quiet_NaN());
  encode_output(call.key, call.arguments(), values);
  EXPECT_EQ(call.output[3], 0x7f);
  EXPECT_EQ(call.output[2], 0x78) << "256 * 2^-8";
  EXPECT_EQ(call.output_scales[0], 119);
  EXPECT_EQ(call.output[8 * 32 + 5], 0x7f) << "head 0, chunk 1";
  EXPECT_EQ(call.output_scales[8 / 4 * call.scale_column_stride * 4], 105);
}

TEST(DecodeErrors, ShowEveryDifferenceAndEveryNan) {
  const std::vector<double> want = {3, 4, 0};
  EXPECT_EQ(relative_frobenius(want, want), 0);
  EXPECT_NEAR(relative_frobenius(std::vector<double>{3, 4, 0.5}, want), 0.1, 1e-15);
  EXPECT_EQ(largest_error(std::vector<double>{3.25, 3.5, 0}, want), 0.5);
  const std::vector<double> zeros(3);
  EXPECT_EQ(relative_frobenius(zeros, zeros), 0);
  EXPECT_EQ(relative_frobenius(want, zeros), std::numeric_limits<double>::infinity());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& spoilt : {std::vector<double>{nan, 4, 9}, {3, nan, 0}, {9, 4, nan}}) {
    EXPECT_TRUE(std::isnan(relative_frobenius(spoilt, want)));
    EXPECT_TRUE(std::isnan(largest_error(spoilt, want)));
    EXPECT_TRUE(std::isnan(largest_error(want, spoilt)));
  }
}

TEST(DecodeKey, EachWrongFieldIsNamedWithItsValueAndWhatIsAllowed) {
  for (const u32 heads : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) EXPECT_TRUE(check(Key{.heads = heads}));
  EXPECT_TRUE(check(Key{.swa_slots = 1, .compressed_slots = 0, .swa_page_slots = 1}));
  EXPECT_TRUE(check(Key{.swa_slots = 65536,
                        .compressed_slots = 65536,
                        .record = Record::nvfp4,
                        .swa_page_slots = 65536,
                        .page_slots = 65536}));
  EXPECT_TRUE(check(Key{.swa_slots = 100, .compressed_slots = 130})) << "the last tile is partial";
  struct Row {
    Key key;
    const char* says;
  };
  for (const auto& [key, says] : {
           Row{{.heads = 0}, "heads is 0; it must be a divisor of 64"},
           Row{{.heads = 24}, "heads is 24; it must be a divisor of 64"},
           Row{{.heads = 128}, "heads is 128"},
           Row{{.swa_slots = 0}, "swa_slots is 0; it must be from 1 to 65536"},
           Row{{.swa_slots = 65537}, "swa_slots is 65537"},
           Row{{.compressed_slots = 65537},
               "compressed_slots is 65537; it must be 0 (no compressed list) or at most 65536"},
           Row{{.record = static_cast<Record>(2)}, "record is 2; it must be 0 (fp8) or 1 (nvfp4)"},
           Row{{.swa_page_slots = 0},
               "swa_page_slots is 0; it must be a power of two, at most 65536"},
           Row{{.swa_page_slots = 48}, "swa_page_slots is 48"},
           Row{{.page_slots = 0}, " page_slots is 0"},
           Row{{.page_slots = 96}, " page_slots is 96; it must be a power of two, at most 65536"},
           Row{{.page_slots = 131072}, " page_slots is 131072"},
           Row{{.compressed_slots = 0, .page_slots = 3}, " page_slots is 3"},
       }) {
    const Status status = check(key);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(status).find(says), std::string::npos) << message_of(status);
  }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
