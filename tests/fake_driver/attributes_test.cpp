// Every launch attribute to the byte, what an old driver or a small device is refused, and what
// changes in place.
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>

#include "fixture.hpp"

namespace kiln::test {
namespace {

class Attributes : public FakeDriverFixture {
 protected:
  void SetUp() override {
    FakeDriverFixture::SetUp();
    if (!IsSkipped()) runtime_.emplace(runtime_with({kWaitSource, kSharedSource}));
  }
  Result<LaunchDescriptor> prepare(const LaunchShape& shape, std::uint32_t kernel = 0) {
    return runtime_->launches().prepare(get(*runtime_, kernel), shape, CUdeviceptr{0});
  }
  std::vector<CUlaunchAttribute> attributes_of(const LaunchShape& shape) {
    driver_.forget();
    auto launch = prepare(shape);
    EXPECT_TRUE(launch) << message_of(launch);
    if (!launch) return {};
    EXPECT_TRUE(launch->launch(nullptr));
    const auto launches = driver_.launches();
    return launches.empty() ? std::vector<CUlaunchAttribute>() : launches.front().attributes;
  }
  std::optional<Runtime> runtime_;
};

CUlaunchAttribute attribute(CUlaunchAttributeID id, const auto& fill) {
  CUlaunchAttribute made{};
  made.id = id;
  fill(made.value);
  return made;
}

TEST_F(Attributes, EachIsExactlyWhatWasAskedFor) {
  auto* event = reinterpret_cast<CUevent>(0x1230);
  auto* base = reinterpret_cast<void*>(0x45600);
  using Value = CUlaunchAttributeValue;
  const std::pair<LaunchShape, CUlaunchAttribute> cases[] = {
      {{.grid_blocks = {4, 2, 1}, .cluster_blocks = {2, 2, 1}},
       attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                 [](Value& v) {
                   v.clusterDim = {2, 2, 1};
                 })},
      {{.cluster_scheduling = ClusterScheduling::spread},
       attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                 [](Value& v) {
                   v.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
                 })},
      {{.cluster_scheduling = ClusterScheduling::load_balancing},
       attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                 [](Value& v) {
                   v.clusterSchedulingPolicyPreference =
                       CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
                 })},
      {{.overlap_previous = Overlap::yes},
       attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                 [](Value& v) { v.programmaticStreamSerializationAllowed = 1; })},
      {{.programmatic_event = {event, true}},
       attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
                 [&](Value& v) {
                   v.programmaticEvent = {event, 0, 1};
                 })},
      {{.launch_completion_event = event},
       attribute(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
                 [&](Value& v) { v.launchCompletionEvent.event = event; })},
      {{.cooperative = true},
       attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, [](Value& v) { v.cooperative = 1; })},
      {{.priority = -3},
       attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY, [](Value& v) { v.priority = -3; })},
      {{.memory_domain = MemoryDomain::remote},
       attribute(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                 [](Value& v) { v.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE; })},
      {{.access_window = {.base = base, .bytes = 4096, .hit_ratio = 0.5f}},
       attribute(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                 [&](Value& v) {
                   v.accessPolicyWindow.base_ptr = base;
                   v.accessPolicyWindow.num_bytes = 4096;
                   v.accessPolicyWindow.hitRatio = 0.5f;
                   v.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
                   v.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_STREAMING;
                 })},
      {{.shared_carveout_percent = 75},
       attribute(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                 [](Value& v) { v.sharedMemCarveout = 75; })},
  };
  for (const auto& [shape, expected] : cases) {
    const auto seen = attributes_of(shape);
    ASSERT_EQ(seen.size(), 1u) << "attribute " << expected.id;
    EXPECT_EQ(seen[0].id, expected.id);
    EXPECT_EQ(std::memcmp(&seen[0].value, &expected.value, sizeof expected.value), 0)
        << "attribute " << expected.id;
  }
  EXPECT_TRUE(attributes_of({}).empty());
}

TEST_F(Attributes, AllTogetherFitAndNoneIsDropped) {
  auto* event = reinterpret_cast<CUevent>(0x1230);
  const auto seen = attributes_of({.grid_blocks = {8},
                                   .cluster_blocks = {2},
                                   .preferred_cluster_blocks = {4},
                                   .overlap_previous = Overlap::yes,
                                   .cooperative = true,
                                   .cluster_scheduling = ClusterScheduling::spread,
                                   .memory_domain = MemoryDomain::local,
                                   .priority = 1,
                                   .access_window = {.base = event, .bytes = 64},
                                   .programmatic_event = {event, false},
                                   .launch_completion_event = event,
                                   .shared_carveout_percent = 0});
  EXPECT_EQ(seen.size(), 11u);
}

TEST_F(Attributes, WhatTheDriverIsTooOldForNamesBothVersions) {
  struct Case {
    LaunchShape shape;
    int version;
    const char* needed;
    const char* older;
  };
  const Case cases[] = {
      {{.grid_blocks = {4}, .cluster_blocks = {2}, .preferred_cluster_blocks = {4}},
       12080,
       "12.8",
       "12.7"},
      {{.launch_completion_event = reinterpret_cast<CUevent>(16)}, 12030, "12.3", "12.2"},
      {{.shared_carveout_percent = 50}, 12050, "12.5", "12.4"},
  };
  for (const auto& [shape, version, needed, older] : cases) {
    driver_.set_driver_version(version - 10);
    runtime_.emplace(runtime_with({kWaitSource}));
    const auto refused = prepare(shape);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
    EXPECT_NE(message_of(refused).find(needed), std::string::npos) << message_of(refused);
    EXPECT_NE(message_of(refused).find(older), std::string::npos) << message_of(refused);
    driver_.set_driver_version(version);
    runtime_.emplace(runtime_with({kWaitSource}));
    EXPECT_TRUE(prepare(shape));
  }
}

TEST_F(Attributes, ImpossibleOnesAreRefusedBeforeTheDriverIsAsked) {
  static_cast<void>(get(*runtime_));
  const auto refused_for = [&](const LaunchShape& shape, const char* part) {
    driver_.forget();
    const auto refused = prepare(shape, 1);
    EXPECT_FALSE(refused) << part;
    EXPECT_NE(message_of(refused).find(part), std::string::npos) << message_of(refused);
    EXPECT_EQ(driver_.calls("cuOccupancyMaxActiveClusters"), 0u) << part;
  };
  static_cast<void>(get(*runtime_, 1));
  refused_for({.overlap_previous = Overlap::yes}, "griddepcontrol.wait");
  refused_for({.shared_carveout_percent = 101}, "from 0 to 100");
  refused_for({.access_window = {.bytes = 8, .hit_ratio = 1.5f}}, "from 0 to 1");
  refused_for({.access_window = {.bytes = 8, .hit_ratio = std::numeric_limits<float>::quiet_NaN()}},
              "from 0 to 1");
  refused_for({.access_window = {.base = this, .bytes = 8, .misses = CachePolicy::persisting}},
              "persisting");
  refused_for({.access_window = {.bytes = 8}}, "at no address");
  refused_for({.access_window = {.base = this, .bytes = (128u << 20) + 1}}, "134217728");
  refused_for({.cluster_blocks = {0}}, "no dimension may be 0");
  refused_for({.cluster_blocks = {65536, 65536, 65536}}, "65535 x 65535");
  refused_for({.preferred_cluster_blocks = {4}}, "set cluster_blocks");
  refused_for({.grid_blocks = {6}, .cluster_blocks = {2}, .preferred_cluster_blocks = {3}},
              "not a multiple of the cluster");
  refused_for({.grid_blocks = {6}, .cluster_blocks = {2}, .preferred_cluster_blocks = {4}},
              "not a multiple of the preferred cluster");
  refused_for(
      {.grid_blocks = {4, 1, 2}, .cluster_blocks = {2}, .preferred_cluster_blocks = {2, 1, 2}},
      "differs from the cluster");
}

TEST_F(Attributes, OverlapWithoutAWaitIsAllowedByName) {
  auto launch = prepare({.overlap_previous = Overlap::yes_without_wait}, 1);
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->launch(nullptr));
  ASSERT_EQ(driver_.launches().size(), 1u);
  EXPECT_NE(driver_.launches()[0].attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION),
            nullptr);
}

TEST_F(Attributes, ADeviceWithoutClustersOrCooperationSaysSo) {
  driver_.set_device_attribute(0, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0);
  driver_.set_device_attribute(0, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0);
  EXPECT_EQ(prepare({.grid_blocks = {2}, .cluster_blocks = {2}}).error().code(),
            ErrorCode::unsupported);
  EXPECT_EQ(prepare({.cooperative = true}).error().code(), ErrorCode::unsupported);
}

TEST_F(Attributes, ALargeClusterNeedsNothingSetAfterTheLoad) {
  const auto kernel = get(*runtime_);
  driver_.forget();
  for (int i = 0; i < 3; ++i) {
    auto launch = prepare({.grid_blocks = {32}, .cluster_blocks = {16}});
    ASSERT_TRUE(launch) << message_of(launch);
    EXPECT_TRUE(launch->launch(nullptr));
  }
  EXPECT_EQ(driver_.calls("cuKernelSetAttribute"), 0u);
  const auto refused = prepare({.grid_blocks = {64}, .cluster_blocks = {32}});
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
  EXPECT_NE(message_of(refused).find("at most 16"), std::string::npos) << message_of(refused);
}

TEST_F(Attributes, AClusterChangesInPlaceOrNotAtAll) {
  auto launch = prepare({.grid_blocks = {16}, .cluster_blocks = {2}});
  ASSERT_TRUE(launch) << message_of(launch);
  const auto cluster = [&] {
    driver_.forget();
    EXPECT_TRUE(launch->launch(nullptr));
    const auto seen = driver_.launches().at(0);
    EXPECT_EQ(seen.grid[0], 16u);
    return seen.attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)->clusterDim.x;
  };
  EXPECT_EQ(cluster(), 2u);
  ASSERT_TRUE(launch->set_cluster({8}));
  EXPECT_EQ(cluster(), 8u);
  EXPECT_FALSE(launch->set_cluster({3}));
  EXPECT_FALSE(launch->set_cluster({0}));
  EXPECT_FALSE(launch->set_cluster({32}));
  EXPECT_EQ(cluster(), 8u);
  auto without = prepare({});
  EXPECT_EQ(without->set_cluster({2}).code(), ErrorCode::invalid_argument);
}

TEST_F(Attributes, AGridAndItsClusterChangeTogetherOrNotAtAll) {
  auto launch = prepare({.grid_blocks = {8, 3}, .cluster_blocks = {8}});
  ASSERT_TRUE(launch) << message_of(launch);
  const auto seen = [&] {
    driver_.forget();
    EXPECT_TRUE(launch->launch(nullptr));
    const auto launched = driver_.launches().at(0);
    return std::array{launched.grid[0], launched.grid[1],
                      launched.attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)->clusterDim.x};
  };
  ASSERT_TRUE(launch->set_grid_and_cluster({5, 2}, {5}));
  EXPECT_EQ(seen(), (std::array{5u, 2u, 5u}));
  EXPECT_FALSE(launch->set_grid_and_cluster({5, 2}, {2})) << "2 does not divide 5";
  EXPECT_FALSE(launch->set_grid_and_cluster({32, 2}, {32}));
  EXPECT_FALSE(launch->set_grid_and_cluster({4, 2}, {5}));
  EXPECT_EQ(seen(), (std::array{5u, 2u, 5u}));
  ASSERT_TRUE(launch->set_grid_and_cluster({0}, {4})) << "an empty batch";
  driver_.forget();
  EXPECT_TRUE(launch->launch(nullptr));
  EXPECT_TRUE(driver_.launches().empty());
  ASSERT_TRUE(launch->set_grid_and_cluster({4, 9}, {4}));
  EXPECT_EQ(seen(), (std::array{4u, 9u, 4u}));
}

TEST_F(Attributes, AnotherDevicesContextOrNoneIsRefused) {
  const auto kernel = get(*runtime_);
  std::thread([&] {
    const auto refused = runtime_->launches().prepare(kernel, {}, CUdeviceptr{0});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::no_device);
    EXPECT_NE(message_of(refused).find("no context is current"), std::string::npos);
  }).join();
}

TEST_F(Attributes, AnEmptyGridDoesNothingUntilItIsNoneAnyMore) {
  auto launch = prepare({.grid_blocks = {0}});
  ASSERT_TRUE(launch) << message_of(launch);
  driver_.forget();
  EXPECT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 0u);
  ASSERT_TRUE(launch->set_grid({3}));
  EXPECT_TRUE(launch->launch(nullptr));
  ASSERT_TRUE(launch->set_grid({1, 0, 1}));
  EXPECT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 1u);
}

TEST_F(Attributes, ACooperativeGridIsHeldToThisDevice) {
  LaunchShape shape{.grid_blocks = {132 * 2}, .block_threads = {1024}, .cooperative = true};
  auto launch = prepare(shape);
  ASSERT_TRUE(launch) << message_of(launch);
  EXPECT_EQ(launch->set_grid({132 * 2 + 1}).code(), ErrorCode::invalid_argument);
  // The same launch on a device with fewer multiprocessors.
  driver_.set_device_attribute(0, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16);
  auto small = runtime_with({kWaitSource});
  const auto refused = small.launches().prepare(get(small), shape, CUdeviceptr{0});
  ASSERT_FALSE(refused);
  EXPECT_NE(message_of(refused).find("at most 32"), std::string::npos) << message_of(refused);
}

TEST_F(Attributes, ThePoolCountsAndKeepsItsSlots) {
  auto& pool = runtime_->launches();
  EXPECT_EQ(pool.usage().capacity, 64u);
  ASSERT_TRUE(pool.reserve(100));
  const auto capacity = pool.usage().capacity;
  EXPECT_GE(capacity, 100u);
  {
    std::vector<LaunchDescriptor> held;
    for (int i = 0; i < 100; ++i) held.push_back(*prepare({}));
    EXPECT_EQ(pool.usage().in_use, 100u);
    EXPECT_EQ(pool.usage().capacity, capacity);
  }
  EXPECT_EQ(pool.usage().in_use, 0u);
  EXPECT_EQ(pool.usage().high_water, 100u);
  EXPECT_EQ(pool.reserve(1, 32765).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(pool.reserve(1'000'001).code(), ErrorCode::invalid_argument);
}

TEST_F(Attributes, ManyThreadsPrepareAndGiveBackAtOnce) {
  const auto kernel = get(*runtime_);
  auto& pool = runtime_->launches();
  driver_.set_recording(false);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  CUcontext context = nullptr;
  cuda_->functions().cuCtxGetCurrent_(&context);
  for (unsigned t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      cuda_->functions().cuCtxSetCurrent_(context);
      std::vector<LaunchDescriptor> held;
      for (unsigned i = 0; i < 3000; ++i) {
        const CUdeviceptr mark = t * 1'000'000 + i;
        auto launch = pool.prepare(kernel, {}, mark);
        if (!launch || !launch->launch(nullptr)) {
          ++wrong;
          continue;
        }
        held.push_back(*std::move(launch));
        // Nobody else may have been given this slot.
        CUdeviceptr seen = 0;
        std::memcpy(&seen, held.back().packed_arguments().data(), sizeof seen);
        if (seen != mark) ++wrong;
        if (i % 7 == 0) held.clear();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.usage().in_use, 0u);
  EXPECT_LE(pool.usage().high_water, 8u * 8u);
}

#ifndef NDEBUG
TEST_F(Attributes, ADebugBuildCatchesADescriptorInTwoThreads) {
  auto launch = prepare({});
  ASSERT_TRUE(launch);
  driver_.set_latency("cuLaunchKernelEx", std::chrono::milliseconds(200));
  Status other;
  CUcontext context = nullptr;
  cuda_->functions().cuCtxGetCurrent_(&context);
  std::thread busy([&] {
    cuda_->functions().cuCtxSetCurrent_(context);
    EXPECT_TRUE(launch->launch(nullptr));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  other = launch->set_grid({2});
  busy.join();
  EXPECT_EQ(other.code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(other).find("two threads"), std::string::npos);
}

TEST_F(Attributes, ADebugBuildCatchesAnEmptyDescriptor) {
  auto launch = prepare({});
  ASSERT_TRUE(launch);
  const auto taken = *std::move(launch);
  EXPECT_EQ(launch->launch(nullptr).code(), ErrorCode::invalid_argument);
}
#endif

}  // namespace
}  // namespace kiln::test
