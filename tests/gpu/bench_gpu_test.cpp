// The harness on a device: outputs are right, equal and checked, whatever the times are.
#include <gtest/gtest.h>

#include <optional>

#include "kernel_src/benches.hpp"
#include "kernel_src/kernels.hpp"
#include "kiln/bench.hpp"
#include "support/cuda_driver.hpp"
#include "support/kernels.hpp"

namespace kiln::test {
namespace {

class BenchGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRES_GPU();
    auto runtime = Runtime::open({});
    ASSERT_TRUE(runtime) << message_of(runtime);
    runtime_.emplace(*std::move(runtime));
    ASSERT_TRUE(kernels::add_sources(*runtime_));
    auto device = bench::Device::open(*runtime_);
    ASSERT_TRUE(device) << message_of(device);
    device_.emplace(*std::move(device));
  }

  std::optional<Runtime> runtime_;
  std::optional<bench::Device> device_;
};

TEST_F(BenchGpu, EveryKernelsBenchmarkGivesRightAndEqualOutputsWarmAndCold) {
  for (const auto& known : kernels::kernel_benches())
    for (std::size_t problem = 0; problem < known.problems.size(); ++problem)
      for (const auto l2 : {bench::L2::warm, bench::L2::cold}) {
        SCOPED_TRACE(std::string(known.name) + ", " + std::string(known.problems[problem]));
        const auto made = known.make(*device_, problem, 65);
        ASSERT_TRUE(made) << message_of(made);
        const auto one = made->arm(*runtime_, "one");
        const auto other = made->arm(*runtime_, "other");
        ASSERT_TRUE(one && other);
        const auto comparison = bench::compare_device(
            *device_, *one, *other, {.l2 = l2, .calls = 4},
            {.claim = bench::Claim::same, .rounds = 8, .bitwise_parity = true});
        ASSERT_TRUE(comparison) << message_of(comparison);
        EXPECT_FALSE(comparison->last().wrong_output) << comparison->last().faults.front();
        EXPECT_GT(comparison->last().figures.baseline.median, 0);
        // NVML comes with the driver.
        EXPECT_EQ(comparison->last().clocks.readings, 2u);
        EXPECT_GT(comparison->last().clocks.most_sm_mhz, 0u);
      }
}

TEST_F(BenchGpu, AnArmThatDoesNothingIsFound) {
  const auto& known = kernels::kernel_benches().front();
  const auto made = known.make(*device_, 0, 8);
  ASSERT_TRUE(made) << message_of(made);
  const auto good = made->arm(*runtime_, "good");
  ASSERT_TRUE(good) << message_of(good);
  auto idle = *good;
  idle.enqueue = [](CUstream) { return Status{}; };
  const auto comparison = bench::compare_device(*device_, *good, idle, {.calls = 2}, {.rounds = 8});
  ASSERT_TRUE(comparison) << message_of(comparison);
  EXPECT_TRUE(comparison->last().wrong_output);
  EXPECT_EQ(comparison->verdict, bench::Verdict::refused);
}

}  // namespace
}  // namespace kiln::test
