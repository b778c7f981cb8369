// First use by many threads on several contexts and devices (trial T17), and a context that is
// reset under loaded kernels.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/gpu_test.hpp"

namespace kiln::test {
namespace {

constexpr std::string_view kThreadMarkSource = R"(
extern "C" __global__ void entry(unsigned* out, unsigned mark) { *out = mark; }
)";

class LaunchThreadsGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    add("mark.cu", kThreadMarkSource);
  }

  // 8 threads take the contexts in an order of their own, 10,000 times in all, the first time
  // together.
  void use_all_at_once(const std::vector<CUcontext>& contexts) {
    const auto id = id_of({.name = "mark", .source = "mark.cu"});
    const auto& cuda = driver_->functions();
    constexpr unsigned kThreads = 8;
    constexpr unsigned kCalls = 10'000 / kThreads;
    std::atomic<unsigned> ready{0};
    std::atomic<unsigned> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::vector<CUdeviceptr> outs(contexts.size());
        for (std::size_t c = 0; c < contexts.size(); ++c) {
          cuda.cuCtxSetCurrent_(contexts[c]);
          cuda.cuMemAlloc_(&outs[c], sizeof(unsigned));
        }
        std::mt19937 random(t);
        ++ready;
        while (ready < kThreads) std::this_thread::yield();
        for (unsigned i = 0; i < kCalls; ++i) {
          const auto which = random() % contexts.size();
          cuda.cuCtxSetCurrent_(contexts[which]);
          const unsigned mark = t * kCalls + i + 1;
          const auto kernel = runtime_->get(id);
          if (!kernel) {
            ++wrong;
            continue;
          }
          auto launch = launches().prepare(*kernel, {}, outs[which], mark);
          unsigned seen = 0;
          if (!launch || !launch->launch(nullptr) ||
              cuda.cuMemcpyDtoH_(&seen, outs[which], sizeof seen) != CUDA_SUCCESS || seen != mark)
            ++wrong;
        }
        for (std::size_t c = 0; c < contexts.size(); ++c) {
          cuda.cuCtxSetCurrent_(contexts[c]);
          cuda.cuMemFree_(outs[c]);
        }
      });
    std::thread([&] {
      const auto without = runtime_->get(id);
      EXPECT_EQ(without.error().code(), ErrorCode::no_device);
    }).join();
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(runtime_->counters().compiles, 1u);
    EXPECT_EQ(runtime_->counters().module_loads, 1u);
  }
};

TEST_F(LaunchThreadsGpu, T17EightThreadsOnTwoContexts) {
  CUcontext first = nullptr;
  driver_->functions().cuCtxGetCurrent_(&first);
  const auto second = driver_->second_context();
  CUcontext other = nullptr;
  driver_->functions().cuCtxGetCurrent_(&other);
  use_all_at_once({first, other});
}

TEST_F(LaunchThreadsGpu, T17EightThreadsOnTwoDevices) {
  int count = 0;
  driver_->functions().cuDeviceGetCount_(&count);
  if (count < 2) GTEST_SKIP() << "there is one device only";
  CUcontext first = nullptr;
  driver_->functions().cuCtxGetCurrent_(&first);
  CUcontext other = nullptr;
  KILN_CU(&driver_->functions(), cuDevicePrimaryCtxRetain, &other, 1);
  use_all_at_once({first, other});
  driver_->functions().cuCtxSetCurrent_(first);
  driver_->functions().cuDevicePrimaryCtxRelease_(1);
}

// Everything that was in the context is gone with it; a launch is then right or a typed error, and
// nothing ends the process.
void use_over_a_reset() {
  const TemporaryDirectory directory;
  auto driver = *std::move(CudaDriver::open());
  auto runtime = *std::move(Runtime::open({.cache_directory = directory.path() / "cache"}));
  if (!runtime.add_source("mark.cu", kThreadMarkSource)) std::exit(2);
  const auto id = runtime.add({.name = "mark", .source = "mark.cu"});
  const auto kernel = runtime.get(*id);
  if (!kernel) std::exit(3);
  auto old = runtime.launches().prepare(*kernel, {}, CUdeviceptr{0}, 0u);
  const auto reset = reinterpret_cast<decltype(&::cuDevicePrimaryCtxReset)>(
      ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "cuDevicePrimaryCtxReset_v2"));
  if (reset == nullptr || reset(0) != CUDA_SUCCESS) std::exit(7);
  const auto gone = old->launch(nullptr);
  if (gone || gone.code() != ErrorCode::driver_failed) std::exit(4);

  const auto again = *std::move(CudaDriver::open());  // the primary context anew
  auto memory = again.buffer(sizeof(unsigned));
  if (!old->set_argument(0, memory.address()) || !old->set_argument(1, 7u)) std::exit(5);
  const auto status = old->launch(nullptr);
  if (status ? memory.download<unsigned>()[0] != 7 : status.code() != ErrorCode::driver_failed)
    std::exit(6);
  std::fprintf(stderr, "after the reset: %s\n", status ? "launched again" : "a typed error");
  std::exit(0);
}

TEST_F(LaunchThreadsGpu, AResetContextIsNoCrash) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(use_over_a_reset(), ::testing::ExitedWithCode(0), "after the reset");
}

}  // namespace
}  // namespace kiln::test
