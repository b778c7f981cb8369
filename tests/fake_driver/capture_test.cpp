// A descriptor's launch under capture: what the driver is asked, and by which of its versions.
#include "fixture.hpp"

namespace kiln::test {
namespace {

class Capture : public FakeDriverFixture {
 protected:
  void begin(const Stream& stream) const {
    ASSERT_EQ(
        cuda_->functions().cuStreamBeginCapture_(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
  }
  // The nodes of the graph, in the order of their capture.
  std::vector<CUgraphNode> end(const Stream& stream) const {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuda_->functions().cuStreamEndCapture_(stream.handle(), &graph), CUDA_SUCCESS);
    const auto nodes_of = driver_.symbol<decltype(cuGraphGetNodes)>("cuGraphGetNodes");
    std::size_t count = 0;
    EXPECT_EQ(nodes_of(graph, nullptr, &count), CUDA_SUCCESS);
    std::vector<CUgraphNode> nodes(count);
    EXPECT_EQ(nodes_of(graph, nodes.data(), &count), CUDA_SUCCESS);
    return nodes;
  }
};

TEST_F(Capture, TheNodeIsFoundWithOldAndNewDrivers) {
  for (const int version : {12000, 12020, 12030, 13000}) {
    driver_.set_driver_version(version);
    auto runtime = runtime_with({kWaitSource});
    auto launch = runtime.launches().prepare(get(runtime), {.overlap_previous = Overlap::yes},
                                             CUdeviceptr{0});
    ASSERT_TRUE(launch) << message_of(launch);
    const auto stream = cuda_->stream();
    begin(stream);
    driver_.forget();
    const auto first = launch->capture(stream.handle());
    const auto second = launch->capture(stream.handle());
    ASSERT_TRUE(first) << message_of(first);
    ASSERT_TRUE(second) << message_of(second);
    EXPECT_EQ(driver_.calls("cuStreamGetCaptureInfo"), 4u) << version << ": graph, then node";
    EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 2u);
    EXPECT_EQ(end(stream), (std::vector{first->node, second->node})) << version;
  }
}

TEST_F(Capture, NothingIsLaunchedWhereNothingIsCaptured) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  const auto stream = cuda_->stream();
  for (const auto idle : {stream.handle(), CUstream{nullptr}, CU_STREAM_LEGACY})
    EXPECT_EQ(launch->capture(idle).error().code(), ErrorCode::invalid_argument);
  begin(stream);
  for (const auto legacy : {CUstream{nullptr}, CU_STREAM_LEGACY})
    EXPECT_EQ(launch->capture(legacy).error().code(), ErrorCode::capture_active);
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 0u);
  EXPECT_TRUE(launch->capture(stream.handle())) << "the capture goes on";
  EXPECT_EQ(end(stream).size(), 1u);
}

// An instance keeps what it was captured with until it is told otherwise, node by node.
TEST_F(Capture, ANodeOfAnInstanceTakesGridAndArgumentsAndIsSwitchedOffAndOn) {
  auto runtime = runtime_with({kWaitSource});
  const auto kernel = get(runtime);
  auto first = runtime.launches().prepare(kernel, {.grid_blocks = {1}}, CUdeviceptr{1});
  auto second = runtime.launches().prepare(kernel, {.grid_blocks = {4}, .cluster_blocks = {2}},
                                           CUdeviceptr{2});
  ASSERT_TRUE(first && second);
  CapturedLaunch one, two;
  const auto stream = cuda_->stream();
  const auto graph = cuda_->capture(stream, [&] {
    one = *first->capture(stream.handle());
    two = *second->capture(stream.handle());
  });
  const auto replayed = [&] {
    driver_.forget();
    graph.launch(stream);
    std::vector<std::pair<CUdeviceptr, unsigned>> seen;
    for (const auto& launch : driver_.launches())
      seen.emplace_back(launch.argument<CUdeviceptr>(0), launch.grid[0]);
    return seen;
  };
  using Seen = std::vector<std::pair<CUdeviceptr, unsigned>>;
  ASSERT_TRUE(second->set_argument(0, CUdeviceptr{7}));
  ASSERT_TRUE(second->set_grid({6}));
  EXPECT_EQ(replayed(), (Seen{{1, 1}, {2, 4}})) << "not before update()";
  ASSERT_TRUE(second->update(graph.handle(), two));
  EXPECT_EQ(replayed(), (Seen{{1, 1}, {7, 6}}));
  ASSERT_NE(driver_.launches()[1].attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION), nullptr);
  ASSERT_TRUE(first->set_enabled(graph.handle(), one, false));
  EXPECT_EQ(replayed(), (Seen{{7, 6}}));
  ASSERT_TRUE(first->set_enabled(graph.handle(), one, true));

  driver_.fail("cuGraphExecKernelNodeSetParams", CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  driver_.fail("cuGraphNodeSetEnabled", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(second->update(graph.handle(), two).error().driver_result(),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(first->set_enabled(graph.handle(), one, false).error().driver_result(),
            CUDA_ERROR_INVALID_VALUE);
  driver_.succeed("cuGraphExecKernelNodeSetParams");
  driver_.succeed("cuGraphNodeSetEnabled");
  ASSERT_TRUE(second->set_grid({0}));
  const auto empty = second->update(graph.handle(), two);
  EXPECT_EQ(empty.code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(empty).find("set_enabled"), std::string::npos) << message_of(empty);
  ASSERT_TRUE(second->set_grid_and_cluster({8}, {4}));
  const auto other = second->update(graph.handle(), two);
  EXPECT_EQ(other.code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(other).find("4 x 1 x 1"), std::string::npos) << message_of(other);
  EXPECT_NE(message_of(other).find("2 x 1 x 1"), std::string::npos) << message_of(other);
  EXPECT_EQ(replayed(), (Seen{{1, 1}, {7, 6}})) << "a refusal changes nothing";
}

// Two libraries of one source: their kernels are alike and not the same.
TEST_F(Capture, ANodeIsNotGivenAnotherKernel) {
  auto runtime = runtime_with({kWaitSource});
  auto other_runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{1});
  auto other = other_runtime.launches().prepare(get(other_runtime), {}, CUdeviceptr{2});
  ASSERT_TRUE(launch && other);
  CapturedLaunch node;
  const auto stream = cuda_->stream();
  const auto graph = cuda_->capture(stream, [&] { node = *launch->capture(stream.handle()); });
  const auto refused = other->update(graph.handle(), node);
  EXPECT_EQ(refused.code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(refused).find("another kernel"), std::string::npos) << message_of(refused);
  EXPECT_TRUE(launch->update(graph.handle(), node));
}

TEST_F(Capture, ALaunchThatTheGraphCannotKeepIsNotCaptured) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  const auto stream = cuda_->stream();
  begin(stream);
  for (const char* function : {"cuUserObjectCreate", "cuGraphRetainUserObject"}) {
    driver_.fail(function, CUDA_ERROR_OUT_OF_MEMORY);
    for (const auto& status :
         {launch->launch(stream.handle()), Status(launch->capture(stream.handle()).error())}) {
      EXPECT_EQ(status.code(), ErrorCode::driver_failed);
      EXPECT_NE(message_of(status).find(function), std::string::npos) << message_of(status);
    }
    driver_.succeed(function);
  }
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 0u);
  EXPECT_TRUE(launch->launch(stream.handle())) << "the capture goes on";
  EXPECT_EQ(end(stream).size(), 1u);
  *launch = {};
  { const auto gone = std::move(runtime); }
  EXPECT_EQ(driver_.live(fake_driver::Object::library), 1u) << "the graph's";
}

TEST_F(Capture, APoolThatWouldHaveToGrowIsRefusedAndTheCaptureGoesOn) {
  auto runtime = runtime_with({kWaitSource});
  const auto kernel = get(runtime);
  std::vector<LaunchDescriptor> all;
  const auto prepare = [&] { return runtime.launches().prepare(kernel, {}, CUdeviceptr{0}); };
  const auto stream = cuda_->stream();
  begin(stream);
  for (std::size_t i = runtime.launches().usage().capacity; i > 0; --i) {
    auto launch = prepare();
    ASSERT_TRUE(launch) << message_of(launch);
    all.push_back(*std::move(launch));
  }
  const auto refused = prepare();
  EXPECT_EQ(refused.error().code(), ErrorCode::capture_active);
  EXPECT_NE(message_of(refused).find("reserve"), std::string::npos) << message_of(refused);
  EXPECT_TRUE(all.back().launch(stream.handle()));
  all.pop_back();
  EXPECT_TRUE(prepare()) << "one was given back";
  EXPECT_EQ(end(stream).size(), 1u);
  all.push_back(*prepare());
  EXPECT_TRUE(prepare()) << "it grows again";
}

TEST_F(Capture, ARefusedQueryIsTheDriversError) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  const auto stream = cuda_->stream();
  begin(stream);
  driver_.fail("cuStreamGetCaptureInfo", CUDA_ERROR_UNKNOWN);
  const auto captured = launch->capture(stream.handle());
  ASSERT_FALSE(captured);
  EXPECT_EQ(captured.error().code(), ErrorCode::driver_failed);
  EXPECT_NE(message_of(captured).find("cuStreamGetCaptureInfo"), std::string::npos);
  static_cast<void>(end(stream));
}

}  // namespace
}  // namespace kiln::test
