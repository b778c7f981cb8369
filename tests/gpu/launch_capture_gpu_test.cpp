// Launching under stream capture, graph nodes, and what the default stream means. Trials T25 and
// T29.
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/gpu_test.hpp"

namespace kiln::test {
namespace {

constexpr std::string_view kAddSource = R"(
extern "C" __global__ void entry(int* x, int amount) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  atomicAdd(x + blockIdx.x, amount);
}
)";

// Spins for about `cycles`, then counts.
constexpr std::string_view kSlowSource = R"(
extern "C" __global__ void entry(int* x, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {}
  *x += 1;
}
)";

class LaunchCaptureGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    add("add.cu", kAddSource);
    add("slow.cu", kSlowSource);
    add("scale.cu", kScaleSource);
  }
  CUstreamCaptureStatus state(const Stream& stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(driver_->functions().cuStreamIsCapturing_(stream.handle(), &status), CUDA_SUCCESS);
    return status;
  }
  void begin(const Stream& stream, CUstreamCaptureMode mode) const {
    ASSERT_EQ(driver_->functions().cuStreamBeginCapture_(stream.handle(), mode), CUDA_SUCCESS);
  }
  Graph end(const Stream& stream) const {
    CUgraph graph = nullptr;
    EXPECT_EQ(driver_->functions().cuStreamEndCapture_(stream.handle(), &graph), CUDA_SUCCESS);
    return {driver_->shared_functions(), graph};
  }
  KernelSpec add_spec() const { return {.name = "add", .source = "add.cu"}; }
};

// compute-sanitizer waits for each kernel, and its own work at an unload ends every capture.
bool under_a_sanitizer() {
  return std::getenv("NV_SANITIZER_INJECTION_PORT_BASE") != nullptr;
}

constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                          CU_STREAM_CAPTURE_MODE_RELAXED};

TEST_F(LaunchCaptureGpu, T25AKernelThatIsNotLoadedIsRefusedAndTheCaptureGoesOn) {
  const auto absent = id_of(scale_spec(100));
  const auto on_disk = id_of(scale_spec(101));
  ASSERT_TRUE(runtime_->artifact(on_disk, runtime_->device()->architecture));
  const auto add = kernel(add_spec());
  for (const auto mode : kModes) {
    auto x = driver_->upload(std::vector<int>{0});
    auto launch = launches().prepare(add, {}, x.address(), 5);
    ASSERT_TRUE(launch) << message_of(launch);
    auto stream = driver_->stream();
    begin(stream, mode);
    for (const auto id : {absent, on_disk}) {
      const auto refused = runtime_->get(id);
      EXPECT_EQ(refused.error().code(), ErrorCode::capture_active);
      EXPECT_NE(message_of(refused).find("kernel scale"), std::string::npos);
      EXPECT_NE(message_of(refused).find("warmup"), std::string::npos);
    }
    EXPECT_EQ(state(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_TRUE(launch->launch(stream.handle()));
    const auto graph = end(stream);
    graph.launch(stream);
    graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(x.download<int>()[0], 10);
  }
}

TEST_F(LaunchCaptureGpu, T25WhatCannotBeSeenIsLoadedWithoutSpoilingTheCapture) {
  int offset = 200;
  for (const auto mode : kModes) {
    auto stream = driver_->stream(CU_STREAM_NON_BLOCKING);
    begin(stream, mode);
    const auto here = runtime_->get(id_of(scale_spec(++offset)));
    EXPECT_TRUE(here) << message_of(here);
    EXPECT_EQ(state(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUcontext context = nullptr;
    driver_->functions().cuCtxGetCurrent_(&context);
    std::thread([&] {
      driver_->functions().cuCtxSetCurrent_(context);
      const auto other = runtime_->get(id_of(scale_spec(++offset)));
      EXPECT_TRUE(other) << message_of(other);
    }).join();
    EXPECT_EQ(state(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    static_cast<void>(end(stream));
  }
}

// By its last holder, and by the next Runtime after a graph; of a kernel that has run and of one
// that has not.
TEST_F(LaunchCaptureGpu, UnloadingALibraryDoesNotSpoilACapture) {
  if (under_a_sanitizer()) GTEST_SKIP() << "under compute-sanitizer an unload ends every capture";
  const auto open = [&] {
    auto opened = Runtime::open({.cache_directory = directory_.path() / "cache"});
    EXPECT_TRUE(opened && opened->add_source("add.cu", kAddSource));
    return opened;
  };
  auto x = driver_->upload(std::vector<int>{0});
  auto stays = launches().prepare(kernel(add_spec()), {}, x.address(), 1);
  ASSERT_TRUE(stays) << message_of(stays);
  auto before = driver_->stream(CU_STREAM_NON_BLOCKING);
  auto stream = driver_->stream(CU_STREAM_NON_BLOCKING);
  int expected = 0;
  for (const auto mode : kModes)
    for (int round = 0; round < 10; ++round)
      for (const bool runs : {false, true}) {
        auto direct = open();
        auto by_graph = open();
        for (auto* const other : {&direct, &by_graph}) {
          const auto kernel = (*other)->get(*(*other)->add(add_spec()));
          ASSERT_TRUE(kernel) << message_of(kernel);
          auto launch = (*other)->launches().prepare(*kernel, {}, x.address(), 10);
          ASSERT_TRUE(launch) << message_of(launch);
          EXPECT_TRUE(!runs || launch->launch(before.handle()));
          if (other == &direct) continue;
          begin(before, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
          ASSERT_TRUE(launch->launch(before.handle()));
          const auto graph = end(before);
          if (runs) graph.launch(before);
          before.synchronize();
        }
        by_graph = open();
        begin(stream, mode);
        ASSERT_TRUE(stays->launch(stream.handle()));
        direct = open();
        by_graph = open();
        ASSERT_EQ(state(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE)
            << "mode " << mode << ", " << runs;
        end(stream).launch(stream);
        stream.synchronize();
        expected += runs ? 31 : 1;
        ASSERT_EQ(x.download<int>()[0], expected);
      }
}

TEST_F(LaunchCaptureGpu, T25LoadedKernelsAreCapturedWithTheirAttributes) {
  const auto add = kernel(add_spec());
  for (const auto mode : kModes)
    for (const auto overlap : {Overlap::no, Overlap::yes})
      for (const unsigned cluster : {1u, 2u, 16u}) {
        auto x = driver_->upload(std::vector<int>(16));
        auto launch = launches().prepare(add,
                                         {.grid_blocks = {16},
                                          .cluster_blocks = {cluster},
                                          .shared_bytes = cluster < 16 ? 100u << 10 : 0,
                                          .overlap_previous = overlap},
                                         x.address(), 3);
        ASSERT_TRUE(launch) << message_of(launch);
        auto stream = driver_->stream(CU_STREAM_NON_BLOCKING);
        begin(stream, mode);
        EXPECT_TRUE(launch->launch(stream.handle()));
        EXPECT_TRUE(launch->launch(stream.handle()));
        EXPECT_EQ(state(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        const auto graph = end(stream);
        graph.launch(stream);
        stream.synchronize();
        EXPECT_EQ(x.download<int>(), std::vector<int>(16, 6));
      }
}

// Nothing of ours is left but what the graph, a clone or an instance keeps.
TEST_F(LaunchCaptureGpu, GraphsClonesAndInstancesKeepTheKernelsOfTheirLaunches) {
  const auto& cuda = driver_->functions();
  auto x = driver_->upload(std::vector<int>{0});
  auto stream = driver_->stream(CU_STREAM_NON_BLOCKING);
  const auto replay_and_destroy = [&](CUgraphExec instance) {
    ASSERT_EQ(cuda.cuGraphLaunch_(instance, stream.handle()), CUDA_SUCCESS);
    ASSERT_EQ(cuda.cuGraphLaunch_(instance, stream.handle()), CUDA_SUCCESS);
    ASSERT_EQ(cuda.cuGraphExecDestroy_(instance), CUDA_SUCCESS) << "while it still runs";
    stream.synchronize();
  };
  const auto touch = [&] {  // a call that lets go of what graphs left
    ASSERT_TRUE(Runtime::open({.cache_directory = directory_.path() / "cache"}));
  };
  CUgraph graph = nullptr;
  CUgraph clone = nullptr;
  CUgraphExec first = nullptr;
  CUgraphExec second = nullptr;
  {
    auto other = Runtime::open({.cache_directory = directory_.path() / "cache"});
    ASSERT_TRUE(other && other->add_source("add.cu", kAddSource));
    const auto kernel = other->get(*other->add(add_spec()));
    ASSERT_TRUE(kernel) << message_of(kernel);
    auto launch =
        other->launches().prepare(*kernel, {.overlap_previous = Overlap::yes}, x.address(), 1);
    ASSERT_TRUE(launch) << message_of(launch);
    begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(launch->launch(stream.handle()));
      ASSERT_TRUE(launch->capture(stream.handle()));
    }
    ASSERT_EQ(cuda.cuStreamEndCapture_(stream.handle(), &graph), CUDA_SUCCESS);
  }
  touch();
  ASSERT_EQ(cuda.cuGraphInstantiateWithFlags_(&first, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuGraphClone_(&clone, graph), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuGraphDestroy_(graph), CUDA_SUCCESS);
  touch();
  replay_and_destroy(first);
  touch();
  ASSERT_EQ(cuda.cuGraphInstantiateWithFlags_(&second, clone, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuGraphDestroy_(clone), CUDA_SUCCESS);
  touch();
  replay_and_destroy(second);
  EXPECT_EQ(x.download<int>()[0], 16);
  touch();
}

TEST_F(LaunchCaptureGpu, ACapturedNodeIsFoundUpdatedAndSwitchedOff) {
  const auto add = kernel(add_spec());
  for (const auto overlap : {Overlap::no, Overlap::yes}) {
    auto x = driver_->upload(std::vector<int>(8));
    auto first = launches().prepare(add, {.overlap_previous = overlap}, x.address(), 1);
    auto second = launches().prepare(add, {.overlap_previous = overlap}, x.address(), 10);
    ASSERT_TRUE(first && second);
    auto stream = driver_->stream(CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(first->capture(stream.handle()).error().code(), ErrorCode::invalid_argument);
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    const auto node_1 = first->capture(stream.handle());
    const auto node_2 = second->capture(stream.handle());
    ASSERT_TRUE(node_1) << message_of(node_1);
    ASSERT_TRUE(node_2) << message_of(node_2);
    EXPECT_NE(node_1->node, node_2->node);
    const auto graph = end(stream);
    const auto run = [&] {
      x.assign(std::vector<int>(8));
      graph.launch(stream);
      stream.synchronize();
      return x.download<int>();
    };
    EXPECT_EQ(run()[0], 11);
    ASSERT_TRUE(second->set_argument(1, 20));
    ASSERT_TRUE(second->set_grid({2}));
    EXPECT_EQ(run()[0], 11) << "the graph must not change by itself";
    const auto updated = second->update(graph.handle(), *node_2);
    ASSERT_TRUE(updated) << message_of(updated);
    EXPECT_EQ(run(), (std::vector<int>{21, 20, 0, 0, 0, 0, 0, 0}));
    ASSERT_TRUE(first->set_enabled(graph.handle(), *node_1, false));
    EXPECT_EQ(run(), (std::vector<int>{20, 20, 0, 0, 0, 0, 0, 0}));
    ASSERT_TRUE(first->set_enabled(graph.handle(), *node_1, true));
    EXPECT_EQ(run()[0], 21);
    ASSERT_TRUE(second->set_grid({0}));
    EXPECT_EQ(second->update(graph.handle(), *node_2).code(), ErrorCode::invalid_argument);
  }
}

TEST_F(LaunchCaptureGpu, T29TheLegacyStreamDuringACaptureIsATypedError) {
  const auto add = kernel(add_spec());
  auto x = driver_->upload(std::vector<int>{0});
  auto launch = launches().prepare(add, {}, x.address(), 1);
  ASSERT_TRUE(launch);
  for (const auto legacy : {CUstream{nullptr}, CU_STREAM_LEGACY}) {
    auto stream = driver_->stream();
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(launch->launch(legacy).code(), ErrorCode::capture_active);
    CUgraph graph = nullptr;
    driver_->functions().cuStreamEndCapture_(stream.handle(), &graph);
    if (graph != nullptr) driver_->functions().cuGraphDestroy_(graph);
  }
  // The driver itself refuses to capture the legacy stream, and a launch into it still works.
  EXPECT_NE(driver_->functions().cuStreamBeginCapture_(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_SUCCESS);
  EXPECT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(x.download<int>()[0], 1);
}

// Null and the legacy handle are one stream, ordered with blocking ones; the per-thread handle is
// another. Both builds of a caller pass different handles for "0"; we hand on what we are given.
TEST_F(LaunchCaptureGpu, T29DefaultStreamsAreWhatTheDriverSays) {
  if (under_a_sanitizer()) GTEST_SKIP() << "under compute-sanitizer nothing overlaps";
  const auto slow = kernel({.name = "slow", .source = "slow.cu"});
  auto x = driver_->upload(std::vector<int>{0});
  auto launch = launches().prepare(slow, {}, x.address(), 200'000'000LL);
  auto quick = launches().prepare(slow, {}, x.address(), 0LL);
  ASSERT_TRUE(launch && quick);
  const auto busy = [&](CUstream stream) {
    return driver_->functions().cuStreamQuery_(stream) == CUDA_ERROR_NOT_READY;
  };
  ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_TRUE(busy(CU_STREAM_LEGACY));
  EXPECT_FALSE(busy(CU_STREAM_PER_THREAD)) << "nothing was enqueued there";
  // Per-thread streams are blocking: what comes into one waits for the legacy stream.
  ASSERT_TRUE(quick->launch(CU_STREAM_PER_THREAD));
  EXPECT_TRUE(busy(CU_STREAM_PER_THREAD));
  KILN_CU(&driver_->functions(), cuStreamSynchronize, CU_STREAM_PER_THREAD);
  EXPECT_FALSE(busy(nullptr));

  // Non-blocking streams are not ordered with either.
  auto apart = driver_->stream(CU_STREAM_NON_BLOCKING);
  ASSERT_TRUE(launch->launch(CU_STREAM_LEGACY));
  ASSERT_TRUE(quick->launch(apart.handle()));
  apart.synchronize();
  EXPECT_TRUE(busy(nullptr));
  KILN_CU(&driver_->functions(), cuStreamSynchronize, nullptr);

  // Two threads' per-thread streams overlap.
  ASSERT_TRUE(launch->launch(CU_STREAM_PER_THREAD));
  CUcontext context = nullptr;
  driver_->functions().cuCtxGetCurrent_(&context);
  std::thread([&] {
    driver_->functions().cuCtxSetCurrent_(context);
    auto mine = launches().prepare(slow, {}, x.address(), 0LL);
    ASSERT_TRUE(mine && mine->launch(CU_STREAM_PER_THREAD));
    KILN_CU(&driver_->functions(), cuStreamSynchronize, CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_TRUE(busy(CU_STREAM_PER_THREAD));
  KILN_CU(&driver_->functions(), cuStreamSynchronize, CU_STREAM_PER_THREAD);
}

}  // namespace
}  // namespace kiln::test
