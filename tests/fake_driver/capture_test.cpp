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

TEST_F(Capture, OneQueryFindsTheNodeWithOldAndNewDrivers) {
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
    EXPECT_EQ(driver_.calls("cuStreamGetCaptureInfo"), 2u) << version;
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
