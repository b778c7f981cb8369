// The host reference of Kimi-K3 MLA on cases worked by hand, and what the kernels' roundings cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernel_src/kimi_k3_mla/reference.hpp"
#include "kernel_src/shared/bf16.hpp"
#include "support/runtime_fixture.hpp"
#include "tests/kernel_src/kimi_k3_mla_inputs.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

using kiln::test::message_of;

u8 code(float value) {
  return static_cast<u8>(e4m3_of_float(value));
}

/// A call whose keys and queries are all zero, over pages in order.
HostCall zeros(const Choices& choices) {
  HostCall call = make_call(choices, 1);
  std::fill(call.query.begin(), call.query.end(), u8{0});
  std::fill(call.cache.begin(), call.cache.end(), u8{0});
  return call;
}

Call checked(HostCall& host) {
  const auto call = check(host.arguments());
  EXPECT_TRUE(call) << message_of(call);
  EXPECT_TRUE(check_tables(*call, host.host_tables()))
      << message_of(check_tables(*call, host.host_tables()));
  return call ? *call : Call{};
}

TEST(KimiK3MlaReference, WeighsTwoKeysByTheirScores) {
  // Scores 0 and ln 3: weights 1/4 and 3/4. The second half of the score is the rope part's.
  HostCall host = zeros({.heads = 1, .lengths = {2}, .output_scale = 2});
  host.query[0] = code(1);
  host.query[512 + 63] = code(2);
  host.key_at(0, 1)[0] = code(1);
  host.key_at(0, 1)[512 + 63] = code(0.5f);
  host.key_at(0, 0)[511] = code(-8);
  host.key_at(0, 1)[7] = code(4);
  Arguments arguments = host.arguments();
  arguments.softmax_scale = static_cast<float>(std::log(3.0) / 2);
  const auto call = check(arguments);
  ASSERT_TRUE(call) << message_of(call);
  const Output output = reference(*call);
  ASSERT_EQ(output.values.size(), 512u);
  EXPECT_NEAR(output.values[0], 2 * 0.75, 1e-6);
  EXPECT_NEAR(output.values[7], 2 * 3.0, 1e-6);
  EXPECT_NEAR(output.values[511], 2 * -2.0, 1e-6);
  EXPECT_EQ(output.values[1], 0.0);
}

TEST(KimiK3MlaReference, ShowsATokenTheKeysUpToItsOwn) {
  // Equal scores, and key i is i + 1 in dim 0: a token that sees n keys gives (n + 1) / 2. Request
  // 1 has as many tokens as keys, request 2 fewer keys than tokens, request 3 no key, request 4 no
  // token.
  HostCall host = zeros({.heads = 2, .lengths = {5, 3, 2, 0, 9}, .queries = {2, 3, 4, 2, 0}});
  for (std::size_t request = 0; request < host.batch(); ++request)
    for (std::int32_t key = 0; key < host.lengths[request]; ++key)
      host.key_at(request, static_cast<std::size_t>(key))[0] = code(static_cast<float>(key + 1));
  const Call call = checked(host);
  const Output output = reference(call);
  const std::vector<double> seen = {4, 5, 1, 2, 3, 0, 0, 1, 2, 0, 0};
  ASSERT_EQ(output.values.size(), seen.size() * 2 * 512);
  const auto places = token_places(call);
  ASSERT_EQ(places.size(), seen.size());
  for (std::size_t token = 0; token < seen.size(); ++token) {
    EXPECT_EQ(static_cast<double>(places[token].keys), seen[token]) << token;
    for (const std::size_t head : {0u, 1u})
      EXPECT_NEAR(output.of(token, head)[0], seen[token] == 0 ? 0 : (seen[token] + 1) / 2, 1e-12)
          << token;
    EXPECT_EQ(output.of(token, 0)[1], 0.0);
  }
}

TEST(KimiK3MlaReference, FollowsTablesAndStridesAndLooksAtNothingElse) {
  // Everything that no request names is NaN, or an id of no page, in the first; zero in the second.
  Choices choices{.heads = 3,
                  .lengths = {130, 0, 64, 200},
                  .queries = {1, 2, 0, 3},
                  .row_gap_bytes = 64,
                  .page_gap_bytes = 32,
                  .table_gap = 2,
                  .spare_tokens = 3};
  HostCall poisoned = make_call(choices, 5);
  choices.unused = 0;
  choices.wild_entries = false;
  HostCall clean = make_call(choices, 5);
  const Output want = reference(checked(clean));
  EXPECT_EQ(want.values.size(), 6u * 3 * 512);
  EXPECT_EQ(reference(checked(poisoned)).values, want.values);

  // The same keys in another cache: dense, pages elsewhere.
  Choices dense{.heads = 3, .lengths = choices.lengths, .queries = choices.queries};
  HostCall other = make_call(dense, 6);
  other.query = clean.query;
  other.query.resize(6u * 3 * 576);
  for (std::size_t request = 0; request < 4; ++request)
    for (std::int32_t key = 0; key < clean.lengths[request]; ++key)
      std::memcpy(other.key_at(request, static_cast<std::size_t>(key)),
                  clean.key_at(request, static_cast<std::size_t>(key)), kKeyDim);
  EXPECT_NE(other.tables, clean.tables);
  EXPECT_EQ(reference(checked(other)).values, want.values);
}

// What the device makes of them, whose tables nobody checks: see arguments.hpp.
TEST(KimiK3MlaReference, TakesZerosForPagesThatAreNoneAndLengthsOnlyAsFarAsTheyGo) {
  HostCall host =
      make_call({.heads = 2, .lengths = {300, 70}, .unused = 0, .wild_entries = false}, 3);
  const auto values_of = [](HostCall& of) {
    const auto call = check(of.arguments());
    EXPECT_TRUE(call) << message_of(call);
    Output exact = reference(*call), rounded = model(*call, {.e4m3_terms = 1});
    exact.values.insert(exact.values.end(), rounded.values.begin(), rounded.values.end());
    return exact.values;
  };
  std::int32_t spare = 0;  // a page of zeros that no request has
  while (std::find(host.tables.begin(), host.tables.end(), spare) != host.tables.end()) ++spare;
  ASSERT_LT(static_cast<std::size_t>(spare), host.pages);
  const std::pair<std::size_t, std::int32_t> faults[] = {
      {0, -1},
      {1, std::numeric_limits<std::int32_t>::min()},
      {3, std::numeric_limits<std::int32_t>::max()},
      {host.table_stride, static_cast<std::int32_t>(host.pages)}};
  HostCall wrong = host, zeros_there = host;
  for (const auto& [place, page] : faults) {
    wrong.tables[place] = page;
    zeros_there.tables[place] = spare;
  }
  EXPECT_NE(values_of(zeros_there), values_of(host));
  EXPECT_EQ(values_of(wrong), values_of(zeros_there));

  HostCall outside = host, inside = host;
  outside.lengths = {std::numeric_limits<std::int32_t>::max(), -7};
  inside.lengths = {static_cast<std::int32_t>(host.width * kPageKeys), 0};
  EXPECT_EQ(values_of(outside), values_of(inside));
}

TEST(KimiK3MlaReference, TakesBothFormsOfAQuery) {
  Choices choices{.heads = 5, .lengths = {100, 70}, .queries = {2, 2}};
  HostCall packed = make_call(choices, 9);
  choices.packed = false;
  HostCall uniform = make_call(choices, 9);
  EXPECT_EQ(reference(checked(packed)).values, reference(checked(uniform)).values);
}

TEST(KimiK3MlaReference, LetsNanThroughToTheRowsThatMeetIt) {
  HostCall host = make_call({.heads = 2, .lengths = {10}, .queries = {3}}, 3);
  host.query[(1 * 2 + 1) * 576 + 570] = 0x7f;  // token 1, head 1
  host.key_at(0, 9)[300] = 0xff;               // the last key, which the last token sees alone
  const Output output = reference(checked(host));
  for (std::size_t token = 0; token < 3; ++token)
    for (std::size_t head = 0; head < 2; ++head) {
      const bool meets = token == 2 || (token == 1 && head == 1);
      for (const double value : output.of(token, head)) EXPECT_EQ(std::isnan(value), meets);
    }
  EXPECT_EQ(bf16_of(output)[2 * 2 * 512], 0x7fffu);
}

TEST(KimiK3MlaReference, CountsErrorsByTheContractsTolerance) {
  Output want{.heads = 1, .values = {1.0, 0.0, -4.0, 2.0}};
  const auto bits = [](float value) { return bf16_of_float(value); };
  std::vector<u16> got = {bits(1.0f), bits(0.0f), bits(-4.0f), bits(2.0f)};
  Errors errors = errors_of(got, want, 0.01, 0.02);
  EXPECT_EQ(errors.mismatches, 0u);
  EXPECT_EQ(errors.largest, 0.0);
  EXPECT_EQ(errors.relative_l2, 0.0);
  EXPECT_TRUE(errors.finite);
  got[2] = bits(-4.09375f);  // 0.01 + 0.08 are allowed
  got[1] = bits(0.009f);
  errors = errors_of(got, want, 0.01, 0.02);
  EXPECT_EQ(errors.mismatches, 1u);
  EXPECT_DOUBLE_EQ(errors.largest, 0.09375);
  EXPECT_NEAR(errors.relative_l2, 0.09375 / std::sqrt(21.0), 1e-3);
  got[0] = 0x7fff;
  errors = errors_of(got, want, 0.01, 0.02);
  EXPECT_EQ(errors.mismatches, 2u);
  EXPECT_FALSE(errors.finite);
  want.values[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(errors_of(got, want, 0.01, 0.02).mismatches, 1u);
}

TEST(KimiK3MlaReference, IsWhatTheModelGivesWithoutRoundings) {
  for (const Profile profile :
       {Profile::random, Profile::peaked, Profile::flat, Profile::sink_key}) {
    HostCall host =
        make_call({.heads = 2, .lengths = {300, 1}, .queries = {2, 1}, .profile = profile}, 11);
    const Call call = checked(host);
    const Output want = reference(call), got = model(call, {});
    ASSERT_EQ(got.values.size(), want.values.size());
    for (std::size_t i = 0; i < want.values.size(); ++i)
      ASSERT_NEAR(got.values[i], want.values[i], 1e-9);
  }
}

Errors errors_with(HostCall& host, const Numerics& numerics, double absolute, double relative) {
  const Call call = checked(host);
  return errors_of(bf16_of(model(call, numerics)), reference(call), absolute, relative);
}

// The budget of E4M3 weights over values of unit variance. What a kernel adds to it are fp32 sums.
TEST(KimiK3MlaReference, HoldsTheContractWithOneE4m3TermOverManyKeys) {
  for (const Profile profile : {Profile::random, Profile::peaked, Profile::flat}) {
    HostCall host = make_call({.heads = 2, .lengths = {2500}, .profile = profile}, 12);
    for (const u32 split : {1u, 7u}) {
      const Errors errors =
          errors_with(host, {.e4m3_terms = 1, .sum_of_rounded = true, .split = split}, 0.01, 0.02);
      EXPECT_EQ(errors.mismatches, 0u);
      EXPECT_TRUE(errors.finite);
    }
  }
  HostCall host = make_call({.heads = 4, .lengths = {700, 900}, .profile = Profile::sink_key}, 13);
  const Errors errors = errors_with(host, {.e4m3_terms = 1, .sum_of_rounded = true}, 0.1, 0.1);
  EXPECT_EQ(errors.mismatches, 0u);
  EXPECT_LE(errors.relative_l2, 0.05);
}

TEST(KimiK3MlaReference, NeedsASecondE4m3TermOverFewKeys) {
  HostCall host = make_call({.lengths = {3, 8, 16, 64}}, 14);
  EXPECT_GT(errors_with(host, {.e4m3_terms = 1, .sum_of_rounded = true}, 0.01, 0.02).mismatches,
            100u);
  EXPECT_EQ(errors_with(host, {.e4m3_terms = 2, .sum_of_rounded = true}, 0.01, 0.02).mismatches,
            0u);
}

// Weights that are all rounded the same way are all wrong the same way, and so must be their sum.
TEST(KimiK3MlaReference, IsNearerWithTheSumOfTheRoundedWeights) {
  HostCall host = make_call({.heads = 2, .lengths = {1500}, .profile = Profile::flat}, 15);
  const Errors exact = errors_with(host, {.e4m3_terms = 1}, 0.01, 0.02);
  const Errors rounded = errors_with(host, {.e4m3_terms = 1, .sum_of_rounded = true}, 0.01, 0.02);
  EXPECT_GT(exact.relative_l2, 4 * rounded.relative_l2);
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
