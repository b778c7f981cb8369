// What a warmup leaves for the first launch, on a real device: the time of each kernel's first
// launch against its tenth, after each depth.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "support/gpu_test.hpp"
#include "support/kernels.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kKernels = 16;

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

class WarmupGpuTest : public GpuTest {
 protected:
  struct Times {
    std::vector<double> first{}, tenth{};
  };

  // From the call to the end on the device, in microseconds.
  static double launch(LaunchDescriptor& descriptor, const Stream& stream) {
    const auto started = Clock::now();
    EXPECT_TRUE(descriptor.launch(stream.handle()));
    stream.synchronize();
    return microseconds(Clock::now() - started);
  }

  Times times_after(std::optional<Depth> depth) {
    const TemporaryDirectory directory;
    RuntimeOptions options;
    options.cache_directory = directory / "cache";
    auto runtime = Runtime::open(options);
    EXPECT_TRUE(runtime && runtime->add_source("scale.cu", kScaleSource));
    std::vector<KernelId> ids;
    for (int i = 0; i < kKernels; ++i) ids.push_back(*runtime->add(scale_spec(i)));
    if (depth) {
      const auto report = runtime->warmup({.depth = depth});
      EXPECT_TRUE(report) << message_of(report);
      EXPECT_EQ(report->failed, 0u);
    }
    Times times;
    const auto stream = driver_->stream();
    // One kernel of no consequence first: what the context itself does once is not a kernel's.
    for (const auto id : ids) {
      const auto kernel = runtime->get(id);
      EXPECT_TRUE(kernel) << message_of(kernel);
      if (!kernel) return times;
      auto descriptor = runtime->launches().prepare(*kernel, {.block_threads = {32}},
                                                    CUdeviceptr{0}, CUdeviceptr{0}, 1.0f, 0);
      EXPECT_TRUE(descriptor) << message_of(descriptor);
      if (!descriptor) return times;
      std::vector<double> runs;
      for (int i = 0; i < 10; ++i) runs.push_back(launch(*descriptor, stream));
      if (id == ids.front()) continue;
      times.first.push_back(runs.front());
      times.tenth.push_back(runs.back());
    }
    return times;
  }
};

// The one figure that this asserts is a ratio of times on one machine in one run, of medians over
// the kernels: what a first launch has left to do is tens of times a launch.
TEST_F(WarmupGpuTest, TheFirstLaunchCostsAtMostTwoOfTheTenth) {
  for (const auto& [name, depth] : std::vector<std::pair<const char*, Depth>>{
           {"compile", Depth::compile}, {"load", Depth::load}, {"ready", Depth::launch_ready}}) {
    const auto times = times_after(depth);
    ASSERT_FALSE(times.first.empty());
    const double first = median(times.first), tenth = median(times.tenth);
    std::printf("depth %-8s first launch %7.1f us, tenth %7.1f us (medians of %zu kernels)\n", name,
                first, tenth, times.first.size());
    RecordProperty(std::string(name) + "_first_us", std::to_string(first));
    RecordProperty(std::string(name) + "_tenth_us", std::to_string(tenth));
    if (depth == Depth::launch_ready) {
      EXPECT_LE(first, 2 * tenth);
    }
  }
}

}  // namespace
}  // namespace kiln::test
