// What a preparation takes and refuses of clusters, arguments and tensor maps, and what is left of
// a descriptor or a pool that was moved from.
#include <thread>

#include "fixture.hpp"
#include "kiln/tensor_map.hpp"

namespace kiln::test {
namespace {

class Preparation : public FakeDriverFixture {
 protected:
  void SetUp() override {
    FakeDriverFixture::SetUp();
    if (!IsSkipped()) runtime_.emplace(runtime_with({kWaitSource}));
  }
  Result<LaunchDescriptor> prepare(const LaunchShape& shape, std::uint32_t kernel = 0) {
    return runtime_->launches().prepare(get(*runtime_, kernel), shape, CUdeviceptr{0});
  }
  std::optional<Runtime> runtime_;
};

// The driver answers for the device of the current context, which may have no room or more.
TEST_F(Preparation, AClusterChangesOnlyWithItsDeviceCurrent) {
  driver_.set_device_count(2);
  auto launch = prepare({.grid_blocks = {16}, .cluster_blocks = {2}});
  ASSERT_TRUE(launch) << message_of(launch);
  CUcontext other = nullptr;
  ASSERT_EQ(
      driver_.symbol<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&other, 1),
      CUDA_SUCCESS);
  std::thread([&] {
    const auto none = launch->set_cluster({4});
    EXPECT_EQ(none.code(), ErrorCode::no_device);
    EXPECT_NE(message_of(none).find("no context is current"), std::string::npos);
    cuda_->functions().cuCtxSetCurrent_(other);
    const auto elsewhere = launch->set_grid_and_cluster({8}, {4});
    EXPECT_EQ(elsewhere.code(), ErrorCode::no_device);
    EXPECT_NE(message_of(elsewhere).find("of device 1"), std::string::npos);
  }).join();
  EXPECT_TRUE(launch->set_cluster({4}));
}

// As in a process that has one for each of two models: the same number is another kernel there.
TEST_F(Preparation, AnIdOfAnotherRuntimeIsNoKernelOfThisOne) {
  auto other = open();
  ASSERT_TRUE(other.add_source("other.cu", kSharedSource));
  const auto theirs = other.add({.name = "other", .source = "other.cu"});
  const auto own = runtime_->add(plain_spec("source0.cu"));
  ASSERT_TRUE(theirs && own);
  EXPECT_EQ(theirs->index, own->index);
  EXPECT_FALSE(*theirs == *own);
  const auto refused = [](const auto& result) {
    EXPECT_FALSE(result);
    EXPECT_NE(message_of(result).find("kernel id 0 is not registered in this Runtime"),
              std::string::npos)
        << message_of(result);
  };
  refused(runtime_->get(*theirs));
  refused(runtime_->get(*theirs, 0));
  refused(runtime_->artifact(*theirs, "sm_90a"));
  refused(runtime_->look_up(*theirs, "sm_90a"));
  EXPECT_NE(message_of(runtime_->warmup({.groups = {{"g", {*theirs}}}})).find("kernel id 0"),
            std::string::npos);
  const auto report = runtime_->warmup({.groups = {{"g", {*own}}}});
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->kernels.front().id, *own);
  Runtime moved = *std::move(runtime_);
  EXPECT_TRUE(moved.get(*own));
}

// A device would not help.
TEST_F(Preparation, AnUnknownIdIsNamedWithoutAContextToo) {
  std::thread([&] {
    EXPECT_EQ(runtime_->get(KernelId{0}).error().code(), ErrorCode::no_device);
    const auto unknown = runtime_->get(KernelId{7});
    ASSERT_FALSE(unknown);
    EXPECT_NE(message_of(unknown).find("kernel id 7 is not registered"), std::string::npos);
  }).join();
}

constexpr std::string_view kSingleClusterSource = R"(
extern "C" __global__ void __cluster_dims__(1, 1, 1) entry(int* out) { out[0] = 1; }
)";
constexpr std::string_view kFixedBlockSource = R"(
extern "C" __global__ void __block_size__((64, 1, 1)) entry(int* out) { out[0] = 1; }
)";
constexpr std::string_view kGridOfClustersSource = R"(
extern "C" __global__ void __block_size__((64, 1, 1), (2, 1, 1)) entry(int* out) { out[0] = 1; }
)";

TEST_F(Preparation, WhatTheSourceSaysOfClustersIsKept) {
  runtime_.emplace(runtime_with({kSingleClusterSource, kGridOfClustersSource, kFixedBlockSource}));
  EXPECT_TRUE(prepare({.grid_blocks = {3}}));
  const auto other = prepare({.grid_blocks = {8}, .cluster_blocks = {2}});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(other).find("compiled with, 1 x 1 x 1"), std::string::npos)
      << message_of(other);
  EXPECT_TRUE(prepare({.grid_blocks = {3}, .block_threads = {64}}, 2));
  // Its grid would have twice as many blocks.
  const auto doubled = prepare({.grid_blocks = {8}, .block_threads = {64}}, 1);
  ASSERT_FALSE(doubled);
  EXPECT_EQ(doubled.error().code(), ErrorCode::unsupported);
  EXPECT_NE(message_of(doubled).find("__cluster_dims__"), std::string::npos) << message_of(doubled);
}

TEST_F(Preparation, AnArgumentAtNoAddressIsRefused) {
  const auto kernel = get(*runtime_);
  const Argument none{nullptr, sizeof(CUdeviceptr)};
  const auto refused = runtime_->launches().prepare(kernel, {}, std::span(&none, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(refused).find("argument 0 is at a null pointer"), std::string::npos);
  auto launch = prepare({});
  EXPECT_EQ(launch->set_argument_bytes(0, nullptr, sizeof(CUdeviceptr)).code(),
            ErrorCode::invalid_argument);
}

constexpr std::string_view kMapSource = R"(
#include "jit/tensor_map.cuh"
extern "C" __global__ void entry(char first, const __grid_constant__ kiln::TensorMap map,
                                 unsigned long long* out) { out[0] = map.words[0] + first; }
)";
constexpr std::string_view kLooseMapSource = R"(
struct Bytes { char bytes[128]; };
extern "C" __global__ void entry(char first, const __grid_constant__ Bytes map,
                                 unsigned long long* out) { out[0] = map.bytes[0] + first; }
)";

TEST_F(Preparation, ATensorMapNeedsAnAlignedParameter) {
  for (const auto& [major, minor] : {std::pair(9, 0), {10, 0}, {12, 0}}) {
    driver_.set_compute_capability(0, major, minor);
    runtime_.emplace(runtime_with({kMapSource, kLooseMapSource}));
    const auto with_map = [&](std::uint32_t kernel) {
      return runtime_->launches().prepare(get(*runtime_, kernel), {}, char{1}, TensorMap{},
                                          CUdeviceptr{0});
    };
    const auto taken = with_map(0);
    EXPECT_TRUE(taken) << message_of(taken);
    const auto refused = with_map(1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(refused).find("argument 1 is a tensor map"), std::string::npos)
        << message_of(refused);
    EXPECT_NE(message_of(refused).find("no multiple of 64"), std::string::npos);
  }
}

TEST_F(Preparation, APoolThatWasMovedFromIsTheSamePool) {
  auto pool = runtime_->launches();
  const auto moved = std::move(pool);
  EXPECT_EQ(moved.usage().in_use, 0u);
  const auto launch = pool.prepare(get(*runtime_), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  EXPECT_EQ(moved.usage().in_use, 1u);
}

TEST_F(Preparation, AMovedDescriptorIsEmptyAndGivesItsSlotBack) {
  auto first = prepare({.grid_blocks = {1}});
  auto second = prepare({.grid_blocks = {2}});
  ASSERT_TRUE(first && second);
  *first = std::move(*second);
  EXPECT_FALSE(*second);
  EXPECT_EQ(runtime_->launches().usage().in_use, 1u);
  auto& same = *first;
  *first = std::move(same);
  ASSERT_TRUE(*first);
  driver_.forget();
  EXPECT_TRUE(first->launch(nullptr));
  EXPECT_EQ(driver_.launches().at(0).grid[0], 2u);
}

TEST_F(Preparation, ADeviceWithoutOverlapSaysSo) {
  driver_.set_compute_capability(0, 8, 0);
  runtime_.emplace(runtime_with({kSharedSource}));
  for (const auto overlap : {Overlap::yes, Overlap::yes_without_wait}) {
    const auto refused = prepare({.block_threads = {256}, .overlap_previous = overlap});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
    EXPECT_NE(message_of(refused).find("compute capability 9.0"), std::string::npos)
        << message_of(refused);
  }
  EXPECT_TRUE(prepare({.block_threads = {256}}));
}

}  // namespace
}  // namespace kiln::test
