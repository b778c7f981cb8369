// The figures of made-up samples whose answers are known.
#include <gtest/gtest.h>

#include "kiln/bench/compare.hpp"
#include "runtime/bench/statistics.hpp"

namespace kiln::bench {
namespace {

TEST(BenchStatistics, QuantilesAreLinearBetweenTheNearestValues) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(quantile_of(values, 0), 10);
  EXPECT_DOUBLE_EQ(quantile_of(values, 1), 40);
  EXPECT_DOUBLE_EQ(median_of(values), 25);
  EXPECT_DOUBLE_EQ(quantile_of(values, 0.1), 13);
  EXPECT_DOUBLE_EQ(quantile_of(values, 0.9), 37);
  EXPECT_DOUBLE_EQ(median_of(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median_of(std::vector<double>{7}), 7);
  EXPECT_DOUBLE_EQ(median_of({}), 0);
}

TEST(BenchStatistics, SummaryHasMedianAndTails) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const auto summary = summarize(values);
  EXPECT_DOUBLE_EQ(summary.median, 50);
  EXPECT_DOUBLE_EQ(summary.p10, 10);
  EXPECT_DOUBLE_EQ(summary.p90, 90);
  EXPECT_EQ(summary.count, 101u);
}

Samples equal_samples(std::size_t rounds, double baseline, double candidate) {
  return {.baseline = std::vector<double>(rounds, baseline),
          .candidate = std::vector<double>(rounds, candidate),
          .aa_first = std::vector<double>(rounds, baseline),
          .aa_second = std::vector<double>(rounds, baseline)};
}

TEST(BenchStatistics, RatioIsCandidateOverBaseline) {
  const auto figures = figures_of(equal_samples(8, 10, 9));
  EXPECT_DOUBLE_EQ(figures.ratio, 0.9);
  EXPECT_DOUBLE_EQ(figures.difference.median, -1);
  EXPECT_DOUBLE_EQ(figures.noise_floor, 0);
  EXPECT_DOUBLE_EQ(figures.disagreement, 0);
  EXPECT_DOUBLE_EQ(figures.drift, 0);
}

TEST(BenchStatistics, DifferencesAreTakenRoundByRound) {
  auto samples = equal_samples(8, 0, 0);
  // The medians differ by 3.5, each pair by 1: what disturbs a round disturbs both.
  samples.baseline = {1, 1, 1, 1, 8, 8, 8, 8};
  samples.candidate = {2, 2, 2, 2, 9, 9, 9, 9};
  const auto figures = figures_of(samples);
  EXPECT_DOUBLE_EQ(figures.difference.median, 1);
  EXPECT_DOUBLE_EQ(figures.difference.p90, 1);
}

TEST(BenchStatistics, NoiseFloorIsWhatTheBaselineDiffersFromItself) {
  auto samples = equal_samples(8, 10, 9);
  samples.aa_second.assign(8, 10.5);
  EXPECT_NEAR(figures_of(samples).noise_floor, 0.05, 1e-12);
  EXPECT_NEAR(figures_of(samples).aa_ratio, 1.05, 1e-12);
  EXPECT_NEAR(figures_of(samples).aa_difference.median, 0.5, 1e-12);
  samples.aa_second.assign(8, 9.5);
  EXPECT_NEAR(figures_of(samples).noise_floor, 0.05, 1e-12);
}

TEST(BenchStatistics, DisagreementIsWhatGoingFirstIsWorth) {
  auto samples = equal_samples(8, 10, 10);
  // Whoever goes second takes 10 % more: the candidate in even rounds, the baseline in odd ones.
  for (std::size_t i = 0; i < 8; ++i) (i % 2 == 0 ? samples.candidate : samples.baseline)[i] = 11;
  EXPECT_NEAR(figures_of(samples).disagreement, 1.1 - 1 / 1.1, 1e-12);
}

TEST(BenchStatistics, DriftComparesTheLastQuarterWithTheFirst) {
  auto samples = equal_samples(16, 10, 10);
  for (std::size_t i = 12; i < 16; ++i) samples.candidate[i] = 12;
  EXPECT_NEAR(figures_of(samples).drift, 0.2, 1e-12);
  for (std::size_t i = 12; i < 16; ++i) samples.baseline[i] = 7;
  EXPECT_NEAR(figures_of(samples).drift, 0.3, 1e-12) << "of the arm with more, in any direction";
  // What happens in the middle is no drift.
  samples = equal_samples(16, 10, 10);
  for (std::size_t i = 4; i < 12; ++i) samples.baseline[i] = 20;
  EXPECT_DOUBLE_EQ(figures_of(samples).drift, 0);
}

}  // namespace
}  // namespace kiln::bench
