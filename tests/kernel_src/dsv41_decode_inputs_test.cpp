// What the inputs of sparse decode attention's tests promise, on both sides of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "kernel_src/dsv41_decode/reference.hpp"
#include "tests/kernel_src/dsv41_decode_inputs.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

/// The slots that a token's list names validly.
std::vector<std::int32_t> valid_slots(const HostList& list, std::size_t token) {
  std::vector<std::int32_t> valid;
  for (std::size_t i = 0; i < list.width && static_cast<std::int64_t>(i) < list.lengths[token];
       ++i) {
    const std::int32_t slot = list.slots[token * list.width + i];
    if (slot >= 0 && static_cast<std::size_t>(slot) < list.pages * list.page_slots)
      valid.push_back(slot);
  }
  return valid;
}

TEST(DecodeInputs, ListDistinctWrittenSlotsOfSeveralPages) {
  for (const Lengths lengths : {Lengths::full, Lengths::partial, Lengths::only_swa})
    for (const Holes holes : {Holes::none, Holes::front, Holes::middle, Holes::end, Holes::tiles,
                              Holes::scattered, Holes::all}) {
      const HostCall call =
          make_call({.key = {.heads = 1}, .tokens = 3, .lengths = lengths, .holes = holes}, 41);
      for (std::size_t token = 0; token < 3; ++token) {
        const auto valid = valid_slots(call.swa, token);
        const auto length = static_cast<std::size_t>(std::min(call.swa.lengths[token], 128));
        const std::set<std::int32_t> distinct(valid.begin(), valid.end());
        EXPECT_EQ(distinct.size(), valid.size());
        for (const std::int32_t slot : valid)
          EXPECT_EQ(std::count(call.swa.written.begin(), call.swa.written.end(), slot), 1);
        if (holes == Holes::none) {
          EXPECT_EQ(valid.size(), length);
        }
        if (holes == Holes::all) {
          EXPECT_TRUE(valid.empty());
        }
        if (holes == Holes::tiles) {
          EXPECT_EQ(valid.size(), length > 64 ? length - 64 : 0u);
        }
        if (holes != Holes::none) {
          EXPECT_LT(valid.size(), length);
        }
        if (valid.size() > 40) {
          EXPECT_GT(*distinct.rbegin() / 64 - *distinct.begin() / 64, 1);
        }
        EXPECT_EQ(valid_slots(call.compressed, token).empty(),
                  lengths == Lengths::only_swa || holes == Holes::all);
      }
    }
}

TEST(DecodeInputs, WhatNoListNamesHasNoInfluenceAndIsNanByDefault) {
  for (const Record record : {Record::fp8, Record::nvfp4})
    for (const Holes holes : {Holes::none, Holes::scattered}) {
      Choices choices{
          .key = {.heads = 8, .record = record, .swa_page_slots = 32, .page_slots = 128},
          .tokens = 3,
          .lengths = Lengths::partial,
          .holes = holes,
          .row_gap_bytes = 16,
          .page_gap_bytes = 48,
          .dead_heads = 0x7fc0};
      HostCall poisoned = make_call(choices, 43);
      choices.unlisted = 0;
      choices.dead_heads = 0;
      HostCall clean = make_call(choices, 43);
      for (HostCall* call : {&poisoned, &clean}) {
        const Output output = reference(call->key, call->arguments());
        EXPECT_TRUE(std::all_of(output.values.begin(), output.values.end(),
                                [](double value) { return std::isfinite(value); }));
        encode_output(call->key, call->arguments(), output.values);
      }
      EXPECT_EQ(poisoned.output, clean.output);
      EXPECT_EQ(poisoned.output_scales, clean.output_scales);
      // The poison is one: naming it spoils the output.
      auto& swa = poisoned.swa;
      std::int32_t empty = 0;
      while (std::count(swa.written.begin(), swa.written.end(), empty) != 0) ++empty;
      swa.slots[0] = empty;
      EXPECT_TRUE(std::isnan(reference(poisoned.key, poisoned.arguments()).values[0]));
    }
}

TEST(DecodeInputs, ProfilesAreWhatTheyAreCalled) {
  // Outputs of rows of unit variance: one row alone has about 1, the average of 640 about 0.04.
  const auto size_of = [](Profile profile, Record record) {
    HostCall call =
        make_call({.key = {.record = record}, .profile = profile, .sinks = Sinks::none}, 47);
    const Output output = reference(call.key, call.arguments());
    double squares = 0;
    for (const double value : output.values) squares += value * value;
    return std::sqrt(squares / static_cast<double>(output.values.size()));
  };
  for (const Record record : {Record::fp8, Record::nvfp4}) {
    EXPECT_GT(size_of(Profile::peaked, record), 0.9);
    EXPECT_LT(size_of(Profile::random, record), 0.15);
    EXPECT_GT(size_of(Profile::random, record), 0.03);
    EXPECT_NEAR(size_of(Profile::flat, record), 1, 0.12);
  }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
