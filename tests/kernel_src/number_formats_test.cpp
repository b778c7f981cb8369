// The number formats that both sides share, against doubles: all codes, all roundings that matter.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kernel_src/shared/bf16.hpp"
#include "kernel_src/shared/e2m1.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "kernel_src/shared/nvfp4.hpp"
#include "kernel_src/shared/ue8m0.hpp"

namespace kiln::kernels::test {
namespace {

// The code of the nearest of `values`, ties to the even one, written apart from everything shipped.
template <std::size_t n>
unsigned nearest_code(const std::array<double, n>& values, double magnitude) {
  unsigned best = 0;
  for (unsigned code = 1; code < n; ++code) {
    const double here = std::fabs(values[code] - magnitude);
    const double there = std::fabs(values[best] - magnitude);
    if (here < there || (here == there && code % 2 == 0)) best = code;
  }
  return magnitude > values[n - 1] ? static_cast<unsigned>(n - 1) : best;
}

std::array<double, 127> e4m3_values() {
  std::array<double, 127> values{};
  for (int code = 0; code < 127; ++code)
    values[static_cast<std::size_t>(code)] =
        code < 8 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, code / 8 - 10);
  return values;
}

constexpr std::array<double, 8> kE2m1Values = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

TEST(NumberFormats, E4m3DecodesAllCodes) {
  const auto values = e4m3_values();
  for (u32 code = 0; code < 256; ++code) {
    const float decoded = float_of_e4m3(code);
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(decoded));
      continue;
    }
    EXPECT_EQ(static_cast<double>(std::fabs(decoded)), values[code & 0x7f]) << code;
    EXPECT_EQ(std::signbit(decoded), code >= 128) << code;
    EXPECT_EQ(e4m3_of_float(decoded), code);
  }
}

TEST(NumberFormats, E4m3RoundsEveryBf16AndTheNeighboursOfEveryTie) {
  const auto values = e4m3_values();
  for (u32 bits = 0; bits < 0x8000; ++bits) {
    const float value = float_of_bf16(static_cast<u16>(bits));
    const u32 want = std::isnan(value) ? 0x7f : nearest_code(values, static_cast<double>(value));
    ASSERT_EQ(e4m3_of_float(value), want) << value;
    ASSERT_EQ(e4m3_of_float(-value), std::isnan(value) ? 0x7f : want | 0x80) << -value;
  }
  for (std::size_t code = 0; code + 1 < values.size(); ++code) {
    const auto tie = static_cast<float>((values[code] + values[code + 1]) / 2);
    for (const float value : {std::nextafterf(tie, 0.0f), tie, std::nextafterf(tie, 1e9f)})
      ASSERT_EQ(e4m3_of_float(value), nearest_code(values, static_cast<double>(value))) << value;
  }
}

TEST(NumberFormats, Bf16RoundsBackAndAtEveryTie) {
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const auto code = static_cast<u16>(bits);
    const float value = float_of_bf16(code);
    if (std::isnan(value)) {
      ASSERT_EQ(bf16_of_float(value), 0x7fff) << bits;
      continue;
    }
    ASSERT_EQ(bf16_of_float(value), code);
    if (std::isinf(value)) continue;
    // The next code lies further from zero; the largest float's next is infinity.
    const float tie = float_of((bits << 16) + 0x8000u);
    const auto next = static_cast<u16>(code + 1);
    ASSERT_EQ(bf16_of_float(float_of(bits_of(tie) - 1)), code) << bits;
    ASSERT_EQ(bf16_of_float(tie), code % 2 == 0 ? code : next) << bits;
    ASSERT_EQ(bf16_of_float(float_of(bits_of(tie) + 1)), next) << bits;
  }
  EXPECT_EQ(bf16_of_float(float_of(0x7f800001u)), 0x7fff)
      << "no bit of this NaN is in its upper half";
}

TEST(NumberFormats, Ue8m0DecodesAllCodesAndIsTheSmallestPowerThatHoldsAmax) {
  for (u32 code = 0; code < 255; ++code)
    EXPECT_EQ(static_cast<double>(float_of_ue8m0(code)),
              std::ldexp(1.0, static_cast<int>(code) - 127));
  EXPECT_TRUE(std::isnan(float_of_ue8m0(255)));
  for (u32 code = 1; code < 254; ++code)
    EXPECT_EQ(ue8m0_reciprocal(code) * float_of_ue8m0(code), 1.0f) << code;
  const auto holds = [](float amax, u32 code) {
    const double power = std::ldexp(448.0, static_cast<int>(code) - 127);
    return static_cast<double>(amax) <= power && static_cast<double>(amax) > power / 2;
  };
  EXPECT_EQ(ue8m0_for_e4m3(kUe8m0AmaxFloor), 105u);
  for (u32 bits = bits_of(kUe8m0AmaxFloor); bits < kInfinityBits; bits += 0x1001)
    ASSERT_TRUE(holds(float_of(bits), ue8m0_for_e4m3(float_of(bits)))) << float_of(bits);
  for (int exponent = -22; exponent < 120; ++exponent) {
    const float edge = std::ldexp(448.0f, exponent);
    for (const float amax : {std::nextafterf(edge, 0.0f), edge, std::nextafterf(edge, INFINITY)})
      ASSERT_TRUE(holds(amax, ue8m0_for_e4m3(amax))) << amax;
  }
  EXPECT_EQ(ue8m0_for_e4m3(INFINITY), 247u);
}

TEST(NumberFormats, E2m1DecodesAllCodes) {
  for (u32 code = 0; code < 16; ++code) {
    EXPECT_EQ(static_cast<double>(std::fabs(float_of_e2m1(code))), kE2m1Values[code & 7]);
    EXPECT_EQ(std::signbit(float_of_e2m1(code)), code >= 8);
    EXPECT_EQ(e2m1_of_quotient(float_of_e2m1(code), 1.0f, 1.0f), code);
  }
}

TEST(NumberFormats, E2m1RoundsTheExactQuotientByEveryScale) {
  const auto scales = e4m3_values();
  for (u32 scale_code = 1; scale_code < 127; ++scale_code) {
    const float scale = float_of_e4m3(scale_code);
    const float reciprocal = 1.0f / scale;
    const auto check_value = [&](float value) {
      // Comparing with products decides the exact quotient: 7 ties of 4 bits times 4 bits.
      unsigned want = 0;
      for (unsigned code = 0; code < 7; ++code) {
        const double tie = (kE2m1Values[code] + kE2m1Values[code + 1]) / 2 * scales[scale_code];
        if (static_cast<double>(value) > tie ||
            (static_cast<double>(value) == tie && code % 2 == 1))
          want = code + 1;
      }
      ASSERT_EQ(e2m1_of_quotient(value, scale, reciprocal), want) << value << " / " << scale;
      ASSERT_EQ(e2m1_of_quotient(-value, scale, reciprocal), want | 8) << -value << " / " << scale;
    };
    // Up to what a group with this scale can hold; the largest scale also takes all above.
    const u32 last = scale_code == 126 ? 0x7f80u : bits_of(16 * scale) >> 16;
    for (u32 bits = 0; bits <= last; ++bits) check_value(float_of_bf16(static_cast<u16>(bits)));
    for (unsigned code = 0; code < 7; ++code) {
      const auto tie =
          static_cast<float>((kE2m1Values[code] + kE2m1Values[code + 1]) / 2 * scales[scale_code]);
      check_value(std::nextafterf(tie, 0.0f));
      check_value(std::nextafterf(tie, 1e9f));
    }
    check_value(INFINITY);
  }
}

TEST(NumberFormats, TheNvfp4ScaleIsTheRoundedSixth) {
  EXPECT_EQ(nvfp4_scale(0.0f), kE4m3Smallest);
  EXPECT_EQ(nvfp4_scale(1e-30f), kE4m3Smallest);
  EXPECT_EQ(nvfp4_scale(1e30f), kE4m3Largest);
  EXPECT_EQ(nvfp4_scale(INFINITY), kE4m3Largest);
  // All floats in between were tried once; every 61st is quick.
  for (u32 bits = bits_of(0.01171875f); bits <= bits_of(2688.0f); bits += 61)
    ASSERT_EQ(nvfp4_scale(float_of(bits)), float_of(bits) / 6.0f) << float_of(bits);
}

}  // namespace
}  // namespace kiln::kernels::test
