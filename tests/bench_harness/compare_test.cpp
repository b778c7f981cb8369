// Rounds, gates, the one retry and the verdict, with arms whose times are made up.
#include <gtest/gtest.h>

#include <limits>

#include "kiln/bench/compare.hpp"

namespace kiln::bench {
namespace {

/// Arms that take what a test says, by side and by the number of the sample within the comparison.
class FakeArms {
 public:
  std::function<double(Side, std::size_t)> time = [](Side side, std::size_t) {
    return side == Side::baseline ? 10.0 : 9.0;
  };
  std::function<Status(Side)> check = [](Side) { return Status{}; };
  std::function<Result<std::string>()> parity = [] { return std::string(); };
  std::function<Result<Clock>()> clock = [] { return Clock{.sm_mhz = 1980, .most_sm_mhz = 1980}; };
  std::string order{};  // a letter a sample
  std::size_t checks = 0;
  std::size_t clock_readings = 0;

  Result<Comparison> run(const CompareOptions& options = kFew) {
    Probe probe;
    probe.sample = [this](Side side) -> Result<double> {
      order += side == Side::baseline ? 'A' : 'B';
      return time(side, order.size() - 1);
    };
    probe.check = [this](Side side) {
      ++checks;
      return check(side);
    };
    probe.parity = [this] { return parity(); };
    probe.clock = [this] {
      ++clock_readings;
      return clock();
    };
    return compare(probe, options);
  }

  static constexpr CompareOptions kFew{.rounds = 8, .warmup_rounds = 0};
};

constexpr std::size_t kSamplesOfAnAttempt = 8 * 4;

bool says(const Comparison& comparison, std::string_view text) {
  for (const auto& fault : comparison.last().faults)
    if (fault.find(text) != std::string::npos) return true;
  return false;
}

TEST(BenchCompare, RoundsAlternateAbbaWithAPairOfTheBaselineBeside) {
  FakeArms arms;
  const auto comparison = arms.run();
  ASSERT_TRUE(comparison) << comparison.error().message();
  EXPECT_EQ(arms.order, "ABAABAAAABAABAAAABAABAAAABAABAAA");
  EXPECT_EQ(comparison->attempts.size(), 1u);
  EXPECT_EQ(comparison->last().samples.baseline, std::vector<double>(8, 10));
  EXPECT_EQ(comparison->last().samples.candidate, std::vector<double>(8, 9));
  EXPECT_EQ(comparison->last().samples.aa_first, std::vector<double>(8, 10));
  EXPECT_EQ(comparison->last().samples.aa_second, std::vector<double>(8, 10));
  EXPECT_EQ(arms.checks, 4u) << "both arms before and after";
  EXPECT_EQ(arms.clock_readings, 2u);
}

// In odd rounds the second sample of the pair goes first; a value must not land in the other's.
TEST(BenchCompare, OddRoundsPutEachValueWhereItBelongs) {
  FakeArms arms;
  arms.time = [](Side, std::size_t sample) { return 100.0 + static_cast<double>(sample % 8); };
  const auto comparison = arms.run({.rounds = 8, .warmup_rounds = 0, .most_disagreement = 1});
  ASSERT_TRUE(comparison);
  const auto& samples = comparison->last().samples;
  EXPECT_EQ(samples.baseline[0], 100);
  EXPECT_EQ(samples.candidate[0], 101);
  EXPECT_EQ(samples.aa_first[0], 102);
  EXPECT_EQ(samples.aa_second[0], 103);
  EXPECT_EQ(samples.candidate[1], 104);
  EXPECT_EQ(samples.baseline[1], 105);
  EXPECT_EQ(samples.aa_second[1], 106);
  EXPECT_EQ(samples.aa_first[1], 107);
}

TEST(BenchCompare, WarmupRoundsLeaveNoTrace) {
  FakeArms arms;
  arms.time = [](Side, std::size_t sample) { return sample < 12 ? 1000.0 : 10.0; };
  const auto comparison = arms.run({.rounds = 8, .warmup_rounds = 3});
  ASSERT_TRUE(comparison);
  EXPECT_EQ(arms.order.size(), 12 + kSamplesOfAnAttempt);
  EXPECT_EQ(comparison->last().figures.baseline.p90, 10);
  EXPECT_EQ(comparison->last().samples.baseline.size(), 8u);
}

TEST(BenchCompare, FasterHoldsAtTheRatioAndAboveTheNoise) {
  const struct {
    double candidate;
    double aa_second;
    Verdict verdict;
  } rows[] = {
      {47, 50, Verdict::held},  // 0.94 exactly
      {47.1, 50, Verdict::not_held}, {50, 50, Verdict::not_held}, {60, 50, Verdict::not_held},
      {45, 57, Verdict::not_held},  // 10 % less, where equal arms differ by 14 %
      {45, 52, Verdict::held}};
  for (const auto& row : rows) {
    FakeArms arms;
    arms.time = [&](Side side, std::size_t sample) {
      if (side == Side::candidate) return row.candidate;
      // The second of the A/A pair: the fourth sample of even rounds, the third of odd ones.
      return sample % 8 == 3 || sample % 8 == 6 ? row.aa_second : 50.0;
    };
    const auto comparison = arms.run();
    ASSERT_TRUE(comparison);
    EXPECT_EQ(comparison->verdict, row.verdict) << row.candidate << ", A/A " << row.aa_second;
  }
}

TEST(BenchCompare, SameHoldsWithinTheLimitOnBothSides) {
  const std::pair<double, Verdict> rows[] = {{10, Verdict::held},
                                             {10.2, Verdict::held},
                                             {10.21, Verdict::not_held},
                                             {9.81, Verdict::held},
                                             {9.79, Verdict::not_held}};
  for (const auto& [candidate, verdict] : rows) {
    FakeArms arms;
    arms.time = [time = candidate](Side side, std::size_t) {
      return side == Side::candidate ? time : 10.0;
    };
    const auto comparison =
        arms.run({.claim = Claim::same, .rounds = 8, .warmup_rounds = 0, .same_within = 0.02});
    ASSERT_TRUE(comparison);
    EXPECT_EQ(comparison->verdict, verdict) << candidate;
  }
}

TEST(BenchCompare, EachGateRefusesAndSaysWhy) {
  const struct {
    const char* said;
    std::function<void(FakeArms&)> disturb;
  } rows[] = {
      {"SM clock under load is 1700 MHz",
       [](FakeArms& arms) {
         arms.clock = [] { return Clock{.sm_mhz = 1700, .most_sm_mhz = 1980}; };
       }},
      {"its maximum of 0 MHz",
       [](FakeArms& arms) { arms.clock = [] { return Clock{.sm_mhz = 1980, .most_sm_mhz = 0}; }; }},
      {"SM clock is not known: no NVML here",
       [](FakeArms& arms) {
         arms.clock = [] { return Error(ErrorCode::unsupported, "no NVML here"); };
       }},
      {"two orders",
       [](FakeArms& arms) {
         // The candidate takes 3 % more where it goes second: in even rounds.
         arms.time = [](Side side, std::size_t sample) {
           return side == Side::candidate ? (sample % 8 == 1 ? 9.27 : 9.0) : 10.0;
         };
       }},
      {"drift",
       [](FakeArms& arms) {
         arms.time = [](Side side, std::size_t sample) {
           const double time = side == Side::baseline ? 10.0 : 9.0;
           return sample % kSamplesOfAnAttempt >= 24 ? 1.06 * time : time;
         };
       }},
      {"two orders",  // no number is no pass
       [](FakeArms& arms) {
         arms.time = [](Side, std::size_t) { return std::numeric_limits<double>::quiet_NaN(); };
       }},
      {"drift",  // nothing takes no time
       [](FakeArms& arms) {
         arms.time = [](Side side, std::size_t) { return side == Side::baseline ? 10.0 : 0.0; };
       }},
  };
  for (const auto& row : rows) {
    FakeArms arms;
    row.disturb(arms);
    const auto comparison = arms.run();
    ASSERT_TRUE(comparison);
    EXPECT_EQ(comparison->verdict, Verdict::refused) << row.said;
    EXPECT_TRUE(says(*comparison, row.said)) << comparison->last().faults.front();
    EXPECT_EQ(comparison->attempts.size(), 2u) << row.said;
    EXPECT_EQ(comparison->last().figures.baseline.count, 8u) << "figures all the same";
  }
}

TEST(BenchCompare, AMedianAtTheLimitOfTheClockPasses) {
  FakeArms arms;
  arms.clock = [&] {
    // One low reading of three is no low clock; the receipt shows it.
    return Clock{.sm_mhz = arms.clock_readings == 1 ? 1200u : 1782u,
                 .most_sm_mhz = 1980,
                 .throttle_reasons = arms.clock_readings == 2 ? 4u : 1u};
  };
  const auto comparison = arms.run({.rounds = 12, .warmup_rounds = 0, .least_clock = 0.9});
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->verdict, Verdict::held) << comparison->last().faults.front();
  const auto& clocks = comparison->last().clocks;
  EXPECT_EQ(clocks.readings, 3u);
  EXPECT_EQ(clocks.least_sm_mhz, 1200u);
  EXPECT_EQ(clocks.median_sm_mhz, 1782);
  EXPECT_EQ(clocks.throttle_reasons, 5u);
}

TEST(BenchCompare, ADisturbedAttemptIsMadeOnceMoreAndTheSecondCounts) {
  FakeArms arms;
  // The first attempt drifts; the second is quiet, and shows that the claim is not true.
  arms.time = [](Side side, std::size_t sample) {
    if (sample < kSamplesOfAnAttempt)
      return (side == Side::baseline ? 10.0 : 5.0) * (sample >= 24 ? 2 : 1);
    return 10.0;
  };
  const auto comparison = arms.run();
  ASSERT_TRUE(comparison);
  ASSERT_EQ(comparison->attempts.size(), 2u);
  EXPECT_EQ(arms.order.size(), 2 * kSamplesOfAnAttempt);
  EXPECT_FALSE(comparison->attempts.front().faults.empty()) << "the first is kept";
  EXPECT_NEAR(comparison->attempts.front().figures.ratio, 0.5, 1e-12);
  EXPECT_TRUE(comparison->last().faults.empty());
  EXPECT_EQ(comparison->verdict, Verdict::not_held);
}

TEST(BenchCompare, AValidAttemptIsNeverRepeatedWhateverItShows) {
  FakeArms arms;
  arms.time = [](Side side, std::size_t) { return side == Side::baseline ? 10.0 : 9.5; };
  const auto comparison = arms.run();
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->verdict, Verdict::not_held);
  EXPECT_EQ(comparison->attempts.size(), 1u);
}

TEST(BenchCompare, ThereIsNoThirdAttempt) {
  FakeArms arms;
  arms.time = [](Side side, std::size_t sample) {
    const bool quiet = sample >= 2 * kSamplesOfAnAttempt;
    return (side == Side::baseline ? 10.0 : 5.0) *
           (!quiet && sample % kSamplesOfAnAttempt >= 24 ? 2 : 1);
  };
  const auto comparison = arms.run();
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->attempts.size(), 2u);
  EXPECT_EQ(arms.order.size(), 2 * kSamplesOfAnAttempt);
  EXPECT_EQ(comparison->verdict, Verdict::refused);
}

TEST(BenchCompare, AWrongOutputIsRefusedWithoutARetry) {
  for (const auto wrong : {Side::baseline, Side::candidate})
    for (const std::size_t from : {0u, 3u}) {  // before the rounds; only after them
      FakeArms arms;
      arms.check = [&](Side side) {
        return side == wrong && arms.checks > from
                   ? Status(Error(ErrorCode::invalid_argument, "byte 7 is 1 for 2"))
                   : Status{};
      };
      const auto comparison = arms.run();
      ASSERT_TRUE(comparison);
      if (wrong == Side::baseline && from == 3) {
        EXPECT_EQ(comparison->verdict, Verdict::held) << "its last check was before";
        continue;
      }
      EXPECT_EQ(comparison->verdict, Verdict::refused);
      EXPECT_EQ(comparison->attempts.size(), 1u);
      EXPECT_TRUE(comparison->last().wrong_output);
      EXPECT_TRUE(says(*comparison, wrong == Side::baseline
                                        ? "the baseline's output is wrong: byte 7 is 1 for 2"
                                        : "the candidate's output is wrong: byte 7 is 1 for 2"));
      EXPECT_EQ(comparison->last().figures.baseline.count, 8u) << "figures all the same";
    }
}

TEST(BenchCompare, UnequalBytesAreRefusedOnlyWhereParityIsAskedFor) {
  for (const bool asked : {false, true}) {
    FakeArms arms;
    arms.parity = [] { return std::string("output 0 at byte 3"); };
    const auto comparison = arms.run({.rounds = 8, .warmup_rounds = 0, .bitwise_parity = asked});
    ASSERT_TRUE(comparison);
    EXPECT_EQ(comparison->verdict, asked ? Verdict::refused : Verdict::held);
    EXPECT_EQ(says(*comparison, "output 0 at byte 3"), asked);
    EXPECT_EQ(comparison->attempts.size(), 1u);
  }
}

TEST(BenchCompare, WhatTheDriverCannotDoIsAnErrorAndNoRow) {
  FakeArms arms;
  arms.check = [](Side) {
    return Status(Error::from_driver("cuGraphLaunch", 719, "LAUNCH_FAILED"));
  };
  const auto lost = arms.run();
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code(), ErrorCode::driver_failed);

  Probe probe;
  probe.sample = [](Side) -> Result<double> { return Error(ErrorCode::io_failed, "no time"); };
  const auto failed = compare(probe, FakeArms::kFew);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "no time");
}

TEST(BenchCompare, OptionsThatCannotBeAreNamed) {
  const struct {
    CompareOptions options;
    const char* said;
  } rows[] = {{{.rounds = 0}, "rounds is 0"},
              {{.rounds = 4}, "rounds is 4"},
              {{.rounds = 10}, "rounds is 10"},
              {{.rounds = 100'004}, "rounds is 100004"},
              {{.win_ratio = 1.5}, "win_ratio is 1.5"},
              {{.most_disagreement = -1}, "most_disagreement is -1"},
              {{.most_drift = std::numeric_limits<double>::quiet_NaN()}, "most_drift"}};
  for (const auto& row : rows) {
    FakeArms arms;
    const auto refused = arms.run(row.options);
    ASSERT_FALSE(refused) << row.said;
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(refused.error().message().find(row.said), std::string::npos)
        << refused.error().message();
    EXPECT_EQ(arms.order, "");
  }
  Probe probe;
  EXPECT_FALSE(compare(probe, {}));
  probe.sample = [](Side) -> Result<double> { return 1.0; };
  EXPECT_FALSE(compare(probe, {.bitwise_parity = true}));
}

}  // namespace
}  // namespace kiln::bench
