// How deep a warmup goes, by what the driver is asked, and what is left for the first launch.
#include <thread>

#include "fixture.hpp"

namespace kiln::test {
namespace {

class WarmupDepth : public FakeDriverFixture {
 protected:
  /// Whether the first launch of a warm kernel loads its module.
  bool first_launch_loads(Runtime& runtime) {
    const auto launches = driver_.launches().size();
    auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
    EXPECT_TRUE(launch && launch->launch(nullptr)) << message_of(launch);
    EXPECT_EQ(driver_.launches().size(), launches + 1);
    return driver_.launches().back().loaded_module;
  }
};

class WarmupWithoutContext : public FakeDriverFixture {
 protected:
  void SetUp() override { RuntimeFixture::SetUp(); }
};

TEST_F(WarmupDepth, CompileTouchesNoDriver) {
  auto runtime = runtime_with({kWaitSource});
  driver_.forget();
  ASSERT_TRUE(runtime.warmup({.architectures = {"sm_90a"}, .depth = Depth::compile}));
  for (const char* function : {"cuInit", "cuLibraryLoadData", "cuKernelGetFunction"})
    EXPECT_EQ(driver_.calls(function), 0u) << function;
  EXPECT_TRUE(runtime.ready_for());
}

TEST_F(WarmupWithoutContext, LoadSetsAttributesOnEveryDevice) {
  driver_.set_device_count(2);
  auto runtime = runtime_with({kWaitSource});
  driver_.forget();
  const auto report = runtime.warmup({.depth = Depth::load});
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_TRUE(report->kernels[0].status) << message_of(report->kernels[0].status);
  EXPECT_GT(report->kernels[0].load.count(), 0);
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(driver_.calls("cuKernelSetAttribute"), 4u) << "two limits on each";
  EXPECT_EQ(driver_.calls("cuKernelGetFunction"), 0u);
}

TEST_F(WarmupDepth, LaunchReadyLeavesNothingForTheFirstLaunch) {
  auto runtime = runtime_with({kWaitSource});
  ASSERT_TRUE(runtime.warmup({.depth = Depth::launch_ready}));
  driver_.forget();
  EXPECT_FALSE(first_launch_loads(runtime));
  for (const char* function :
       {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute", "cuKernelGetFunction"})
    EXPECT_EQ(driver_.calls(function), 0u) << function;
}

TEST_F(WarmupDepth, AKernelThatIsOnlyLoadedIsMadeReadyLater) {
  auto runtime = runtime_with({kWaitSource});
  ASSERT_TRUE(cuda_->functions().cuCtxSetCurrent_(nullptr) == CUDA_SUCCESS);
  ASSERT_TRUE(runtime.warmup({.depth = Depth::load}));
  EXPECT_EQ(driver_.calls("cuKernelGetFunction"), 0u);
  // The primary context is in use, and current on no thread: it is found all the same.
  ASSERT_TRUE(runtime.warmup({.depth = Depth::launch_ready}));
  EXPECT_EQ(driver_.calls("cuKernelGetFunction"), 1u);
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 1u);
  CUcontext current = nullptr;
  const auto get_current = driver_.symbol<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
  ASSERT_EQ(get_current(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr) << "the warmup left its context behind";
  make_current();
  EXPECT_FALSE(first_launch_loads(runtime));
}

TEST_F(WarmupWithoutContext, LaunchReadyNeedsOneAndMakesNone) {
  auto runtime = runtime_with({kWaitSource});
  driver_.forget();
  const auto report = runtime.warmup({.depth = Depth::launch_ready});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::no_device);
  EXPECT_NE(message_of(report).find("cudaSetDevice"), std::string::npos) << message_of(report);
  EXPECT_EQ(driver_.calls("cuDevicePrimaryCtxRetain"), 0u);
  // Unasked, it goes as deep as it can.
  EXPECT_TRUE(runtime.warmup());
}

TEST_F(WarmupDepth, ASealedMissInACaptureIsRefusedWhateverThePolicy) {
  auto runtime = runtime_with({kWaitSource, kSharedSource});
  ASSERT_TRUE(runtime.artifact({0}, "sm_90a"));
  int asked = 0;
  runtime.seal({.ask = [&](const Error&) {
    ++asked;
    return OnMiss::allow;
  }});
  const auto stream = cuda_->stream();
  ASSERT_EQ(
      cuda_->functions().cuStreamBeginCapture_(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL),
      CUDA_SUCCESS);
  EXPECT_FALSE(runtime.get({1}));
  EXPECT_FALSE(runtime.artifact({1}, "sm_90a"));
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 0u);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda_->functions().cuStreamEndCapture_(stream.handle(), &graph), CUDA_SUCCESS)
      << "the capture is broken";
  EXPECT_TRUE(runtime.get({1}));
  EXPECT_EQ(asked, 1);
}

TEST_F(WarmupDepth, AGroupIsReadyOnceItIsLoaded) {
  auto runtime = runtime_with({kWaitSource, kSharedSource});
  std::vector<std::uint64_t> loads;
  // One at a time: two that are compiled together may end in either order.
  ASSERT_TRUE(runtime.warmup(
      {.jobs = 1, .groups = {{"first", {KernelId{1}}}}, .progress = [&](const Progress& progress) {
         if (progress.latest != nullptr && runtime.ready_for("first") && loads.empty())
           loads.push_back(runtime.counters().module_loads);
       }}));
  EXPECT_EQ(loads, (std::vector<std::uint64_t>{1}));
}

}  // namespace
}  // namespace kiln::test
