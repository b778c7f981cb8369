// The end of the road on a real device: load, launch, clusters, dependent launch, graphs, contexts.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kiln/runtime.hpp"
#include "support/gpu_test.hpp"
#include "support/kernels.hpp"

namespace kiln::test {
namespace {

// Each block writes its number, its rank in the cluster and the cluster's size.
constexpr std::string_view kClusterSource = R"(
extern "C" __global__ void entry(unsigned* out) {
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) {
    out[blockIdx.x * 3] = blockIdx.x;
    out[blockIdx.x * 3 + 1] = rank;
    out[blockIdx.x * 3 + 2] = size;
  }
}
)";

// y[i] = x[i] + 1, reading x only after the kernel before has ended.
constexpr std::string_view kChainSource = R"(
extern "C" __global__ void entry(const int* x, int* y, int count) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = x[i] + 1;
  asm volatile("griddepcontrol.launch_dependents;");
}
)";

constexpr std::string_view kSharedMemorySource = R"(
extern "C" __global__ void entry(int* out, int words) {
  extern __shared__ int dynamic[];
  __shared__ int fixed[256];
  fixed[threadIdx.x] = static_cast<int>(threadIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < words; i += blockDim.x) dynamic[i] = i;
  __syncthreads();
  int sum = fixed[255];
  for (int i = 0; i < words; ++i) sum += dynamic[i];
  if (threadIdx.x == 0) *out = sum;
}
)";

class RuntimeGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    add("scale.cu", kScaleSource);
    add("cluster.cu", kClusterSource);
    add("chain.cu", kChainSource);
    add("shared.cu", kSharedMemorySource);
  }
};

TEST_F(RuntimeGpu, LaunchesAndPatchesArguments) {
  const auto scale = kernel(scale_spec(3));
  const std::vector<float> x = {1, 2, 3, 4};
  auto dx = driver_->upload(x);
  auto dy = driver_->buffer(x.size() * sizeof(float));
  auto launch = runtime_->launches().prepare(scale, {.block_threads = {32}}, dx.address(),
                                             dy.address(), 2.0f, 4);
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(dy.download<float>(), (std::vector<float>{5, 7, 9, 11}));
  ASSERT_TRUE(launch->set_argument(2, 10.0f));
  ASSERT_TRUE(launch->set_argument(3, 2));
  ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(dy.download<float>(), (std::vector<float>{13, 23, 9, 11}));
}

TEST_F(RuntimeGpu, RefusesWhatTheKernelCannotTake) {
  const auto scale = kernel(scale_spec(0));
  auto& launches = runtime_->launches();
  const std::uint64_t p = 0;
  EXPECT_NE(message_of(launches.prepare(scale, {}, p, p, 1.0f)).find("3 arguments given"),
            std::string::npos);
  EXPECT_NE(message_of(launches.prepare(scale, {}, p, p, 1.0, 1)).find("argument 2 has 8 bytes"),
            std::string::npos);
  EXPECT_EQ(launches.prepare(scale, {.block_threads = {1025}}, p, p, 1.0f, 1).error().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(launches.prepare(scale, {.grid_blocks = {7}, .cluster_blocks = {2}}, p, p, 1.0f, 1)
                .error()
                .code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(
      launches.prepare(scale, {.overlap_previous = Overlap::yes}, p, p, 1.0f, 1).error().code(),
      ErrorCode::unsupported);
  auto launch = launches.prepare(scale, {}, p, p, 1.0f, 1);
  ASSERT_TRUE(launch) << message_of(launch);
  EXPECT_EQ(launch->set_argument(4, 1).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(launch->set_argument(2, 1.0).code(), ErrorCode::invalid_argument);
}

TEST_F(RuntimeGpu, GridsAreInBlocksWithAndWithoutClusters) {
  const auto probe = kernel({.name = "cluster", .source = "cluster.cu"});
  for (const unsigned cluster : {1u, 2u, 4u, 8u}) {
    auto out = driver_->buffer(8 * 3 * sizeof(unsigned));
    auto launch = runtime_->launches().prepare(
        probe, {.grid_blocks = {8}, .block_threads = {32}, .cluster_blocks = {cluster}},
        out.address());
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_TRUE(launch->launch(nullptr));
    const auto got = out.download<unsigned>();
    for (unsigned block = 0; block < 8; ++block) {
      EXPECT_EQ(got[block * 3], block);
      EXPECT_EQ(got[block * 3 + 1], block % cluster) << "cluster " << cluster;
      EXPECT_EQ(got[block * 3 + 2], cluster);
    }
  }
}

TEST_F(RuntimeGpu, AChainOfDependentLaunchesKeepsItsOrderEagerlyAndInAGraph) {
  const auto chain = kernel({.name = "chain", .source = "chain.cu"});
  ASSERT_TRUE(chain.facts().waits_on_grid);
  constexpr int kCount = 1 << 20;
  constexpr int kSteps = 20;
  for (const auto overlap : {Overlap::no, Overlap::yes}) {
    auto a = driver_->upload(std::vector<int>(kCount, 5));
    auto b = driver_->buffer(kCount * sizeof(int));
    const LaunchShape shape{
        .grid_blocks = {kCount / 256}, .block_threads = {256}, .overlap_previous = overlap};
    auto forth = runtime_->launches().prepare(chain, shape, a.address(), b.address(), kCount);
    auto back = runtime_->launches().prepare(chain, shape, b.address(), a.address(), kCount);
    ASSERT_TRUE(forth && back);
    auto stream = driver_->stream();
    const auto run = [&] {
      for (int i = 0; i < kSteps; ++i) {
        ASSERT_TRUE(forth->launch(stream.handle()));
        ASSERT_TRUE(back->launch(stream.handle()));
      }
    };
    run();
    stream.synchronize();
    EXPECT_EQ(a.download<int>(), std::vector<int>(kCount, 5 + 2 * kSteps));
    auto graph = driver_->capture(stream, run);
    for (int replay = 0; replay < 3; ++replay) {
      a.assign(std::vector<int>(kCount, replay * 100));
      graph.launch(stream);
      stream.synchronize();
      EXPECT_EQ(a.download<int>(), std::vector<int>(kCount, replay * 100 + 2 * kSteps));
    }
  }
}

TEST_F(RuntimeGpu, EveryLegalSizeOfDynamicSharedMemoryLaunchesAndNoOther) {
  const auto shared = kernel({.name = "shared", .source = "shared.cu"});
  const auto device = runtime_->device();
  ASSERT_TRUE(device);
  const unsigned most = device->shared_bytes_per_block - 1024;  // 1 KiB is static
  auto out = driver_->buffer(sizeof(int));
  for (const unsigned bytes : {0u, 47u << 10, 48u << 10, (48u << 10) + 4, most}) {
    const int words = static_cast<int>(bytes / 4);
    auto launch = runtime_->launches().prepare(
        shared, {.block_threads = {256}, .shared_bytes = bytes}, out.address(), words);
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_TRUE(launch->launch(nullptr)) << bytes;
    const auto sum = 255 + std::int64_t{words} * (words - 1) / 2;
    EXPECT_EQ(out.download<int>().front(), sum) << bytes;
  }
  const auto refused = runtime_->launches().prepare(
      shared, {.block_threads = {256}, .shared_bytes = most + 1}, out.address(), 0);
  EXPECT_NE(message_of(refused).find(std::to_string(most)), std::string::npos);
}

TEST_F(RuntimeGpu, OneCompileAndOneModuleServeTwoContexts) {
  const auto id = runtime_->add(scale_spec(1));
  ASSERT_TRUE(id);
  const std::vector<float> x = {1, 2, 3, 4};
  for (int i = 0; i < 2; ++i) {
    auto context = driver_->second_context();  // current until it goes
    auto kernel = runtime_->get(*id);
    ASSERT_TRUE(kernel) << message_of(kernel);
    auto dx = driver_->upload(x);
    auto dy = driver_->buffer(x.size() * sizeof(float));
    auto launch = runtime_->launches().prepare(*kernel, {.block_threads = {32}}, dx.address(),
                                               dy.address(), 2.0f, 4);
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_TRUE(launch->launch(nullptr));
    EXPECT_EQ(dy.download<float>(), (std::vector<float>{3, 5, 7, 9}));
  }
  EXPECT_EQ(runtime_->counters().compiles, 1u);
  EXPECT_EQ(runtime_->counters().module_loads, 1u);
}

TEST_F(RuntimeGpu, AThreadWithoutAContextGetsATypedError) {
  const auto id = runtime_->add(scale_spec(2));
  ASSERT_TRUE(id);
  std::thread([&] {
    const auto kernel = runtime_->get(*id);
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code(), ErrorCode::no_device);
    EXPECT_NE(kernel.error().message().find("context"), std::string::npos);
  }).join();
}

TEST_F(RuntimeGpu, WarmupLoadsSoThatGetIsARead) {
  for (int i = 10; i < 15; ++i) ASSERT_TRUE(runtime_->add(scale_spec(i)));
  const auto report = runtime_->warmup();
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->failed, 0u);
  const auto loads = runtime_->counters().module_loads;
  EXPECT_EQ(loads, 5u);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(runtime_->get({i}));
  EXPECT_EQ(runtime_->counters().module_loads, loads);
}

TEST_F(RuntimeGpu, KernelsAndDescriptorsOutliveTheirRuntime) {
  const auto scale = kernel(scale_spec(7));
  const std::vector<float> x = {1, 2};
  auto dx = driver_->upload(x);
  auto dy = driver_->buffer(x.size() * sizeof(float));
  auto launch = runtime_->launches().prepare(scale, {.block_threads = {32}}, dx.address(),
                                             dy.address(), 1.0f, 2);
  ASSERT_TRUE(launch);
  runtime_.reset();
  ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(dy.download<float>(), (std::vector<float>{8, 9}));
}

// T19: KILN_TEST_CARRIED_CACHE names a cache that tests/support/worker filled for sm_90a on a
// machine without a GPU, best with an NVRTC newer than this machine's driver.
TEST_F(RuntimeGpu, ACacheFilledElsewhereByANewerCompilerServesHere) {
  const char* carried = std::getenv("KILN_TEST_CARRIED_CACHE");
  if (carried == nullptr) GTEST_SKIP() << "KILN_TEST_CARRIED_CACHE names no cache";
  auto elsewhere =
      Runtime::open({.cache_directory = carried, .nvrtc = directory_.path() / "absent"});
  ASSERT_TRUE(elsewhere && elsewhere->add_source("scale.cu", kScaleSource));
  const auto id = elsewhere->add(scale_spec(1));
  ASSERT_TRUE(id) << message_of(id);
  const auto scale = elsewhere->get(*id);
  if (!scale) {
    // The driver may be too old for it; then both versions are named.
    EXPECT_EQ(scale.error().code(), ErrorCode::unsupported) << message_of(scale);
    EXPECT_NE(message_of(scale).find("the driver supports CUDA"), std::string::npos);
    return;
  }
  std::printf("loaded code of %s\n", scale->facts().toolchain.c_str());
  const std::vector<float> x = {1, 2, 3};
  auto dx = driver_->upload(x);
  auto dy = driver_->buffer(x.size() * sizeof(float));
  auto launch = elsewhere->launches().prepare(*scale, {.block_threads = {32}}, dx.address(),
                                              dy.address(), 2.0f, 3);
  ASSERT_TRUE(launch && launch->launch(nullptr));
  EXPECT_EQ(dy.download<float>(), (std::vector<float>{3, 5, 7}));
  EXPECT_EQ(elsewhere->counters().compiles, 0u);
  EXPECT_EQ(elsewhere->counters().disk_hits, 1u);
}

}  // namespace
}  // namespace kiln::test
