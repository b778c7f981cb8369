// What a launch may ask for, on a real device: shared memory, clusters, grids, cooperation. Trials
// T22, T23 and T28.
#include <thread>
#include <vector>

#include "support/gpu_test.hpp"

namespace kiln::test {
namespace {

// 1 KiB of static shared memory; writes the last word of the dynamic one and reads it back.
constexpr std::string_view kSharedSource = R"(
extern "C" __global__ void entry(int* out, int words) {
  extern __shared__ int dynamic[];
  __shared__ int fixed[256];
  fixed[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (threadIdx.x == 0 && words > 0) dynamic[words - 1] = words;
  __syncthreads();
  if (threadIdx.x == 0) *out = fixed[255] + (words > 0 ? dynamic[words - 1] : 0);
}
)";

// Each block writes its number, its rank in the cluster, the cluster's size, and what the next
// block of the cluster holds in its shared memory.
constexpr std::string_view kPeerSource = R"(
extern "C" __global__ void CLUSTER entry(unsigned* out) {
  __shared__ unsigned mine;
  unsigned rank, size, peer, theirs;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  mine = 1000 + blockIdx.x;
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(&mine));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(peer) : "r"(address), "r"((rank + 1) % size));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(theirs) : "r"(peer));
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    out[blockIdx.x * 4] = blockIdx.x;
    out[blockIdx.x * 4 + 1] = rank;
    out[blockIdx.x * 4 + 2] = size;
    out[blockIdx.x * 4 + 3] = theirs;
  }
}
)";

// Every block waits for all of them.
constexpr std::string_view kBarrierSource = R"(
extern "C" __global__ void entry(unsigned* arrived, unsigned* out) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (*reinterpret_cast<volatile unsigned*>(arrived) < gridDim.x) {}
    out[blockIdx.x] = gridDim.x;
  }
}
)";

class LaunchLimitsGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    add("shared.cu", kSharedSource);
    add("peer.cu", kPeerSource);
    add("barrier.cu", kBarrierSource);
  }
  Kernel peer(const std::string& cluster = "") {
    return kernel({.name = "peer", .source = "peer.cu", .options = {"-DCLUSTER=" + cluster}});
  }
  // Launches blocks in clusters and checks what each saw.
  void expect_clusters(const Kernel& probe, unsigned grid, const LaunchShape& shape,
                       unsigned size) {
    auto out = driver_->buffer(grid * 4 * sizeof(unsigned));
    auto launch = launches().prepare(probe, shape, out.address());
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_TRUE(launch->launch(nullptr));
    const auto got = out.download<unsigned>();
    for (unsigned block = 0; block < grid; ++block) {
      const auto first = block / size * size;
      EXPECT_EQ(got[block * 4], block);
      EXPECT_EQ(got[block * 4 + 1], block - first);
      EXPECT_EQ(got[block * 4 + 2], size);
      EXPECT_EQ(got[block * 4 + 3], 1000 + first + (block - first + 1) % size);
    }
  }
};

TEST_F(LaunchLimitsGpu, T22EveryLegalSizeOfSharedMemoryRunsAndNoOther) {
  const auto shared = kernel({.name = "shared", .source = "shared.cu"});
  const auto limit = runtime_->device()->shared_bytes_per_block;
  const unsigned most = limit - 1024;
  auto out = driver_->buffer(sizeof(int));
  for (const unsigned bytes : {0u, 47u << 10, 48u << 10, (48u << 10) + 4, most}) {
    const auto words = static_cast<int>(bytes / 4);
    auto launch = launches().prepare(shared, {.block_threads = {256}, .shared_bytes = bytes},
                                     out.address(), words);
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_TRUE(launch->launch(nullptr));
    EXPECT_EQ(out.download<int>()[0], 255 + words);
  }
  for (const unsigned bytes : {most + 1, limit, limit + 1}) {
    const auto refused = launches().prepare(shared, {.block_threads = {256}, .shared_bytes = bytes},
                                            out.address(), 0);
    for (const auto& number : {std::to_string(bytes), std::string("1024"), std::to_string(most)})
      EXPECT_NE(message_of(refused).find(number), std::string::npos) << message_of(refused);
  }
  // Too big for another reason: not called a matter of shared memory.
  const auto block =
      launches().prepare(shared, {.block_threads = {1025}, .shared_bytes = 1024}, out.address(), 0);
  EXPECT_NE(message_of(block).find("1025 threads"), std::string::npos) << message_of(block);
  EXPECT_EQ(message_of(block).find("shared memory"), std::string::npos) << message_of(block);
}

TEST_F(LaunchLimitsGpu, T22SmallAndLargeSharedMemoryInTurnFromTwoThreads) {
  const auto shared = kernel({.name = "shared", .source = "shared.cu"});
  std::vector<std::thread> threads;
  std::array<int, 2> failures{};
  CUcontext context = nullptr;
  driver_->functions().cuCtxGetCurrent_(&context);
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      driver_->functions().cuCtxSetCurrent_(context);
      auto stream = driver_->stream(CU_STREAM_NON_BLOCKING);
      auto out = driver_->buffer(sizeof(int));
      auto small =
          launches().prepare(shared, {.block_threads = {256}, .shared_bytes = 4}, out.address(), 1);
      auto large = launches().prepare(shared, {.block_threads = {256}, .shared_bytes = 200u << 10},
                                      out.address(), 50 << 10);
      for (int i = 0; i < 50'000; ++i) {
        failures[static_cast<std::size_t>(t)] += !small || !small->launch(stream.handle());
        failures[static_cast<std::size_t>(t)] += !large || !large->launch(stream.handle());
        if (i % 1000 == 0) stream.synchronize();
      }
      stream.synchronize();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures[0], 0);
  EXPECT_EQ(failures[1], 0);
}

TEST_F(LaunchLimitsGpu, T23ClustersOfEverySizeReadTheirPeersSharedMemory) {
  const auto probe = peer();
  for (const unsigned size : {1u, 2u, 4u, 8u, 16u})
    expect_clusters(probe, 32,
                    {.grid_blocks = {32}, .block_threads = {32}, .cluster_blocks = {size}}, size);
}

TEST_F(LaunchLimitsGpu, T23WhatDoesNotFitAClusterIsRefusedWithBothSizes) {
  const auto probe = peer();
  const std::uint64_t out = 0;
  const auto odd = launches().prepare(
      probe, {.grid_blocks = {7}, .block_threads = {32}, .cluster_blocks = {2}}, out);
  EXPECT_EQ(odd.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(odd).find("7 x 1 x 1"), std::string::npos) << message_of(odd);
  EXPECT_NE(message_of(odd).find("2 x 1 x 1"), std::string::npos) << message_of(odd);
  const auto large = launches().prepare(
      probe, {.grid_blocks = {64}, .block_threads = {32}, .cluster_blocks = {32}}, out);
  EXPECT_EQ(large.error().code(), ErrorCode::unsupported);
  EXPECT_NE(message_of(large).find("at most 16"), std::string::npos) << message_of(large);

  const auto compiled = peer("__cluster_dims__(4,1,1)");
  const auto other = launches().prepare(
      compiled, {.grid_blocks = {8}, .block_threads = {32}, .cluster_blocks = {2}}, out);
  EXPECT_EQ(other.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(other).find("4 x 1 x 1"), std::string::npos) << message_of(other);
  EXPECT_FALSE(launches().prepare(compiled, {.grid_blocks = {6}, .block_threads = {32}}, out));
  expect_clusters(compiled, 8, {.grid_blocks = {8}, .block_threads = {32}}, 4);
  expect_clusters(compiled, 8, {.grid_blocks = {8}, .block_threads = {32}, .cluster_blocks = {4}},
                  4);
}

TEST_F(LaunchLimitsGpu, T23AClusterOfEightRunsWithTheLargestSharedMemory) {
  const auto probe = peer();
  const auto limit = runtime_->device()->shared_bytes_per_block;
  expect_clusters(probe, 16,
                  {.grid_blocks = {16},
                   .block_threads = {32},
                   .cluster_blocks = {8},
                   .shared_bytes = limit - 1024},
                  8);
}

TEST_F(LaunchLimitsGpu, AClusterIsPatchedInPlace) {
  const auto probe = peer();
  auto out = driver_->buffer(16 * 4 * sizeof(unsigned));
  auto launch = launches().prepare(
      probe, {.grid_blocks = {16}, .block_threads = {32}, .cluster_blocks = {2}}, out.address());
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->set_cluster({8}));
  ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(out.download<unsigned>()[2], 8u);
  EXPECT_EQ(launch->set_cluster({32}).code(), ErrorCode::unsupported);
  EXPECT_EQ(launch->set_cluster({3}).code(), ErrorCode::invalid_argument);
  ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(out.download<unsigned>()[2], 8u) << "a refused change must leave the launch as it was";
}

TEST_F(LaunchLimitsGpu, T28EmptyGridsDoNothingAndBadOnesAreRefused) {
  const auto shared = kernel({.name = "shared", .source = "shared.cu"});
  auto out = driver_->buffer(sizeof(int));
  out.fill(0xFF);
  for (const Extent grid : {Extent{0, 1, 1}, Extent{1, 0, 1}, Extent{1, 1, 0}, Extent{0, 0, 0}}) {
    auto launch =
        launches().prepare(shared, {.grid_blocks = grid, .block_threads = {256}}, out.address(), 0);
    ASSERT_TRUE(launch) << message_of(launch);
    EXPECT_TRUE(launch->launch(nullptr));
    EXPECT_EQ(out.download<int>()[0], -1);
    ASSERT_TRUE(launch->set_grid({1}));
    EXPECT_TRUE(launch->launch(nullptr));
    EXPECT_EQ(out.download<int>()[0], 255);
    ASSERT_TRUE(launch->set_grid({0}));
    out.fill(0xFF);
    EXPECT_TRUE(launch->launch(nullptr));
    EXPECT_EQ(out.download<int>()[0], -1);
  }
  const auto message = [&](const LaunchShape& shape) {
    const auto refused = launches().prepare(shared, shape, out.address(), 0);
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
    return message_of(refused);
  };
  EXPECT_NE(message({.grid_blocks = {1, 65536, 1}, .block_threads = {32}}).find("65535"),
            std::string::npos);
  EXPECT_NE(message({.block_threads = {1025}}).find("1 to 1024"), std::string::npos);
  EXPECT_NE(message({.block_threads = {1, 1, 65}}).find("x 64"), std::string::npos);
}

TEST_F(LaunchLimitsGpu, T28ACooperativeGridIsHeldToWhatIsResident) {
  const auto barrier = kernel({.name = "barrier", .source = "barrier.cu"});
  const LaunchShape shape{.grid_blocks = {1}, .block_threads = {1024}, .cooperative = true};
  const unsigned most = runtime_->device()->sm_count * 2;  // 2,048 threads an SM
  auto arrived = driver_->buffer(sizeof(unsigned));
  auto out = driver_->buffer(most * sizeof(unsigned));
  arrived.fill(0);
  auto launch = launches().prepare(barrier, shape, arrived.address(), out.address());
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->set_grid({most})) << most;
  ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(out.download<unsigned>(), std::vector<unsigned>(most, most));
  const auto refused = launch->set_grid({most + 1});
  EXPECT_EQ(refused.code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(refused).find(std::to_string(most)), std::string::npos);
  // A shape that fewer blocks of are resident has a smaller limit.
  auto wide = shape;
  wide.shared_bytes = 120u << 10;
  wide.grid_blocks = {most};
  EXPECT_FALSE(launches().prepare(barrier, wide, arrived.address(), out.address()));
}

}  // namespace
}  // namespace kiln::test
