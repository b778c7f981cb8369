// Host timing with a clock of the test's own.
#include <gtest/gtest.h>

#include "kiln/bench/host.hpp"

namespace kiln::bench {
namespace {

TEST(BenchHost, ASampleIsTheTimeOfTheCallsAloneDividedByThem) {
  std::int64_t nanoseconds = 0;
  int settled = 0;
  const auto arm = [&](std::string name, std::int64_t cost) {
    return HostArm{.name = std::move(name), .run = [&nanoseconds, cost](unsigned calls) {
                     nanoseconds += cost * calls;
                     return Status{};
                   }};
  };
  const HostTiming timing{.calls = 200,
                          .settle =
                              [&] {
                                ++settled;
                                nanoseconds += 1'000'000;  // must not be counted
                                return Status{};
                              },
                          .now = [&] { return nanoseconds; }};
  const auto comparison =
      compare_host(arm("raw", 3000), arm("ours", 3050), timing, {.rounds = 8, .warmup_rounds = 1});
  ASSERT_TRUE(comparison) << comparison.error().message();
  EXPECT_EQ(comparison->baseline, "raw");
  EXPECT_EQ(comparison->candidate, "ours");
  const auto& figures = comparison->last().figures;
  EXPECT_DOUBLE_EQ(figures.baseline.median, 3);
  EXPECT_DOUBLE_EQ(figures.candidate.median, 3.05);
  EXPECT_NEAR(figures.difference.median, 0.05, 1e-12);
  EXPECT_EQ(comparison->verdict, Verdict::not_held);
  EXPECT_EQ(comparison->last().clocks.readings, 0u) << "the host has no such gate";
  EXPECT_EQ(settled, 4 * 9);
}

TEST(BenchHost, TheMonotonicClockIsTheDefault) {
  const HostArm arm{.name = "empty", .run = [](unsigned) { return Status{}; }};
  const auto comparison = compare_host(arm, arm, {.calls = 1}, {.rounds = 8, .warmup_rounds = 0});
  ASSERT_TRUE(comparison) << comparison.error().message();
  for (const double time : comparison->attempts.front().samples.baseline) EXPECT_GE(time, 0);
}

TEST(BenchHost, ChecksAndErrorsOfTheArmsAreMinded) {
  HostArm good{.name = "good", .run = [](unsigned) { return Status{}; }};
  HostArm bad = good;
  bad.check = [] { return Status(Error(ErrorCode::invalid_argument, "wrote nothing")); };
  const auto refused = compare_host(good, bad, {}, {.rounds = 8});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->verdict, Verdict::refused);
  EXPECT_TRUE(refused->last().wrong_output);
  bad.run = [](unsigned) { return Status(Error(ErrorCode::io_failed, "cannot")); };
  const auto failed = compare_host(good, bad, {}, {.rounds = 8});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "cannot");
  EXPECT_FALSE(compare_host(good, {.name = "none"}, {}, {}));
  EXPECT_FALSE(compare_host(good, good, {.calls = 0}, {}));
}

}  // namespace
}  // namespace kiln::bench
