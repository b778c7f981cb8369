// The fake driver itself, called as a program calls the driver, on a cubin of the real NVRTC: its
// rules have to hold, or the tests that lean on it prove nothing.
#include <cstring>
#include <thread>

#include "fixture.hpp"

namespace kiln::test {
namespace {

using fake_driver::Object;
using fake_driver::Origin;

#define KILN_TEXT_OF(name) #name
// A driver function by the name that cuda.h gives it.
#define KILN_FN(name) (*driver_.symbol<decltype(::name)>(KILN_TEXT_OF(name)))

class Double : public FakeDriverFixture {
 protected:
  std::vector<std::byte> cubin(std::string_view source, const char* architecture = "sm_90a") {
    auto runtime = runtime_with({source});
    const auto artifact = runtime.artifact({0}, architecture);
    EXPECT_TRUE(artifact) << message_of(artifact);
    if (!artifact) return {};
    return {artifact->cubin, artifact->cubin + artifact->cubin_bytes};
  }

  CUresult load(const void* image) {
    return KILN_FN(cuLibraryLoadData)(&library_, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  CUfunction load_kernel(std::string_view source) {
    EXPECT_EQ(load(cubin(source).data()), CUDA_SUCCESS);
    CUkernel kernel = nullptr;
    EXPECT_EQ(KILN_FN(cuLibraryGetKernel)(&kernel, library_, "entry"), CUDA_SUCCESS);
    return reinterpret_cast<CUfunction>(kernel);
  }
  CUresult launch(CUfunction function, CUlaunchConfig config, CUdeviceptr argument = 0) {
    void* arguments[] = {&argument};
    return KILN_FN(cuLaunchKernelEx)(&config, function, arguments, nullptr);
  }
  CUresult begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    return KILN_FN(cuStreamBeginCapture)(stream, mode);
  }
  CUresult end(CUstream stream) { return KILN_FN(cuStreamEndCapture)(stream, &graph_); }

  static constexpr CUlaunchConfig kOne{1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, 0};
  static CUlaunchConfig on(CUstream stream) {
    auto config = kOne;
    config.hStream = stream;
    return config;
  }

  CUlibrary library_ = nullptr;
  CUgraph graph_ = nullptr;
};

TEST_F(Double, HandsOutTheVariantOfTheVersion) {
  const auto find = [&](const char* name, int version, void** address) {
    CUdriverProcAddressQueryResult status{};
    EXPECT_EQ(KILN_FN(cuGetProcAddress)(name, address, version, 0, &status), CUDA_SUCCESS);
    return status;
  };
  void* old_one = nullptr;
  void* new_one = nullptr;
  EXPECT_EQ(find("cuCtxGetDevice", 12000, &old_one), CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(find("cuCtxGetDevice", 13000, &new_one), CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_NE(old_one, new_one);
  EXPECT_EQ(find("cuLibraryLoadData", 11080, &old_one), CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(old_one, nullptr);
  EXPECT_EQ(find("cuNoSuchThing", 13000, &old_one), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  driver_.set_driver_version(12020);
  EXPECT_EQ(find("cuKernelGetParamInfo", 12000, &old_one), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(KILN_FN(cuGetProcAddress)("cuInit", &old_one, 13000, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Double, RefusesWhatIsNoCubinAndWhatIsForAnotherChip) {
  const std::vector<char> text(64, 'x');
  EXPECT_EQ(load(text.data()), CUDA_ERROR_INVALID_IMAGE);
  auto image = cubin(kWaitSource);
  EXPECT_EQ(load(cubin(kSharedSource, "sm_80").data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  driver_.set_compute_capability(0, 8, 6);
  EXPECT_EQ(load(image.data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(cubin(kSharedSource, "sm_80").data()), CUDA_SUCCESS);
  driver_.set_compute_capability(0, 9, 0);
  EXPECT_EQ(load(image.data()), CUDA_SUCCESS);
  image[18] = std::byte{62};  // the machine of a host program
  EXPECT_EQ(load(image.data()), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(Double, ReadsTheParameterTableOfEveryLayout) {
  auto* kernel = reinterpret_cast<CUkernel>(load_kernel(kLayoutSource));
  // Not where a C++ struct would have them: parameters begin at byte 528 of their bank on sm_90,
  // and it is there that the third one is aligned to 64.
  const std::pair<std::size_t, std::size_t> expected[] = {
      {0, 1}, {16, 32}, {48, 128}, {176, 1}, {184, 8}};
  std::size_t offset = 0;
  std::size_t size = 0;
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    ASSERT_EQ(KILN_FN(cuKernelGetParamInfo)(kernel, i, &offset, &size), CUDA_SUCCESS);
    EXPECT_EQ(std::pair(offset, size), expected[i]) << i;
  }
  EXPECT_EQ(KILN_FN(cuKernelGetParamInfo)(kernel, 5, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Double, ReadsParametersBeyondFourKibibytes) {
  auto* kernel = reinterpret_cast<CUkernel>(
      load_kernel("struct Large { int words[5000]; };\n"
                  "extern \"C\" __global__ void entry(Large large, char last, int* out) {\n"
                  "  out[0] = large.words[4999] + last; }\n"));
  std::size_t offset = 0;
  std::size_t size = 0;
  ASSERT_EQ(KILN_FN(cuKernelGetParamInfo)(kernel, 0, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(size, 20000u);
  ASSERT_EQ(KILN_FN(cuKernelGetParamInfo)(kernel, 1, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(std::pair(offset, size), std::pair(std::size_t{20000}, std::size_t{1}));
}

TEST_F(Double, TakesArgumentsFromOneBuffer) {
  auto* function = load_kernel(kLayoutSource);
  std::array<unsigned char, 192> buffer{};
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<unsigned char>(i);
  std::size_t bytes = buffer.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  ASSERT_EQ(KILN_FN(cuLaunchKernelEx)(&kOne, function, nullptr, extra), CUDA_SUCCESS);
  const auto launch = driver_.launches().at(0);
  EXPECT_EQ(launch.argument<char>(3), static_cast<char>(176));
  EXPECT_EQ(std::memcmp(launch.arguments[2].data(), &buffer[48], 128), 0);
  bytes = 191;
  EXPECT_EQ(KILN_FN(cuLaunchKernelEx)(&kOne, function, nullptr, extra), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Double, RefusesLaunchesThatCannotRun) {
  auto* function = load_kernel(kSharedSource);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  const auto clustered = [&](unsigned size, unsigned grid) {
    attribute.value.clusterDim = {size, 1, 1};
    return CUlaunchConfig{grid, 1, 1, 32, 1, 1, 0, nullptr, &attribute, 1};
  };
  EXPECT_EQ(launch(function, clustered(8, 8)), CUDA_SUCCESS);
  EXPECT_EQ(launch(function, clustered(8, 12)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, clustered(16, 16)), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  ASSERT_EQ(KILN_FN(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1,
                                          reinterpret_cast<CUkernel>(function), 0),
            CUDA_SUCCESS);
  EXPECT_EQ(launch(function, clustered(16, 16)), CUDA_SUCCESS);
  const std::pair<CUlaunchConfig, CUresult> cases[] = {
      {{0, 1, 1, 32, 1, 1, 0, nullptr, nullptr, 0}, CUDA_ERROR_INVALID_VALUE},
      {{1, 1, 1, 1025, 1, 1, 0, nullptr, nullptr, 0}, CUDA_ERROR_INVALID_VALUE},
      {{1, 1, 1, 1, 1, 65, 0, nullptr, nullptr, 0}, CUDA_ERROR_INVALID_VALUE},
      {{1, 65536, 1, 1, 1, 1, 0, nullptr, nullptr, 0}, CUDA_ERROR_INVALID_VALUE},
      {{1, 1, 1, 32, 1, 1, 48 << 10, nullptr, nullptr, 0}, CUDA_ERROR_INVALID_VALUE},
      {{1, 1, 1, 32, 1, 1, 47 << 10, nullptr, nullptr, 0}, CUDA_SUCCESS},
      {{1, 1, 1, 32, 1, 1, 0, reinterpret_cast<CUstream>(&attribute), nullptr, 0},
       CUDA_ERROR_INVALID_HANDLE},
  };
  for (const auto& [config, result] : cases) EXPECT_EQ(launch(function, config), result);
  ASSERT_EQ(KILN_FN(cuLibraryUnload)(library_), CUDA_SUCCESS);
  EXPECT_EQ(launch(function, kOne), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(KILN_FN(cuLibraryUnload)(library_), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Double, OccupancyFollowsThreadsAndSharedMemory) {
  auto* function = load_kernel(kSharedSource);
  const auto blocks = [&](int threads, std::size_t shared) {
    int count = -1;
    EXPECT_EQ(
        KILN_FN(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&count, function, threads, shared),
        CUDA_SUCCESS);
    return count;
  };
  EXPECT_EQ(blocks(256, 0), 8);
  EXPECT_EQ(blocks(1024, 0), 2);
  EXPECT_EQ(blocks(32, 0), 32);
  EXPECT_EQ(blocks(32, 40 << 10), 5);  // of 228 KiB, each 40 and 2 more
  EXPECT_EQ(blocks(32, 100 << 10), 0);
}

TEST_F(Double, FailsTheCallThatTheScriptNames) {
  auto* function = load_kernel(kWaitSource);
  driver_.fail("cuLaunchKernelEx", CUDA_ERROR_ILLEGAL_ADDRESS, 2);
  driver_.fail("cuLaunchKernelEx", CUDA_ERROR_LAUNCH_TIMEOUT, 3);
  EXPECT_EQ(launch(function, kOne), CUDA_SUCCESS);
  EXPECT_EQ(launch(function, kOne), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(launch(function, kOne), CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(launch(function, kOne), CUDA_SUCCESS);
  driver_.fail("cuLaunchKernelEx", CUDA_ERROR_LAUNCH_FAILED);
  driver_.set_recording(false);
  EXPECT_EQ(launch(function, kOne), CUDA_ERROR_LAUNCH_FAILED);
  driver_.succeed("cuLaunchKernelEx");
  EXPECT_EQ(launch(function, kOne), CUDA_SUCCESS);
  EXPECT_EQ(driver_.launches().size(), 2u);
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 6u);
}

TEST_F(Double, CountsAndRecordsTheLaunchesOfManyThreads) {
  auto* function = load_kernel(kWaitSource);
  CUcontext context = nullptr;
  KILN_FN(cuCtxGetCurrent)(&context);
  constexpr int kThreads = 16;
  const auto run = [&](int count) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        KILN_FN(cuCtxSetCurrent)(context);
        for (int at = 0; at < count; ++at)
          EXPECT_EQ(launch(function, kOne, static_cast<CUdeviceptr>(i)), CUDA_SUCCESS);
      });
    for (auto& thread : threads) thread.join();
  };
  run(100);
  std::array<int, kThreads> seen{};
  for (const auto& each : driver_.launches()) ++seen[each.argument<CUdeviceptr>(0)];
  for (const auto count : seen) EXPECT_EQ(count, 100);
  driver_.forget();
  driver_.set_recording(false);
  run(1000);
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 16000u);
}

TEST_F(Double, ACaptureForbidsWhatTheDriverForbids) {
  const auto image = cubin(kWaitSource);
  const auto stream = cuda_->stream();
  auto* function = load_kernel(kWaitSource);
  CUdeviceptr memory = 0;
  const auto allocate = [&] { return KILN_FN(cuMemAlloc)(&memory, 16); };

  EXPECT_EQ(begin(nullptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_EQ(begin(stream.handle()), CUDA_SUCCESS);
  EXPECT_EQ(begin(stream.handle()), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(launch(function, on(stream.handle())), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(stream.handle()), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph_, nullptr);

  // Another thread is bound by a global capture alone, and may ask not to be.
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                          CU_STREAM_CAPTURE_MODE_RELAXED}) {
    for (const bool asks : {false, true}) {
      ASSERT_EQ(begin(stream.handle(), mode), CUDA_SUCCESS);
      std::thread([&] {
        auto own = CU_STREAM_CAPTURE_MODE_RELAXED;
        if (asks) {
          ASSERT_EQ(KILN_FN(cuThreadExchangeStreamCaptureMode)(&own), CUDA_SUCCESS);
        }
        const bool forbidden = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && !asks;
        EXPECT_EQ(load(image.data()),
                  forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
      }).join();
      (void)end(stream.handle());
    }
  }
  ASSERT_EQ(begin(stream.handle(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(end(stream.handle()), CUDA_SUCCESS);
}

TEST_F(Double, TheLegacyStreamBreaksACaptureThatItWouldWaitFor) {
  auto* function = load_kernel(kWaitSource);
  const auto blocking = cuda_->stream();
  CUstream other = nullptr;
  ASSERT_EQ(KILN_FN(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;

  ASSERT_EQ(begin(other), CUDA_SUCCESS);
  EXPECT_EQ(launch(function, kOne), CUDA_SUCCESS);
  EXPECT_EQ(KILN_FN(cuStreamIsCapturing)(nullptr, &status), CUDA_SUCCESS);
  EXPECT_EQ(end(other), CUDA_SUCCESS);

  ASSERT_EQ(begin(blocking.handle()), CUDA_SUCCESS);
  EXPECT_EQ(KILN_FN(cuStreamIsCapturing)(blocking.handle(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(KILN_FN(cuStreamIsCapturing)(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(launch(function, kOne), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(KILN_FN(cuStreamIsCapturing)(blocking.handle(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(end(blocking.handle()), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(launch(function, kOne), CUDA_SUCCESS);
}

TEST_F(Double, AForkedStreamMustBeJoined) {
  auto* function = load_kernel(kWaitSource);
  const auto main = cuda_->stream();
  const auto side = cuda_->stream();
  CUevent event = nullptr;
  ASSERT_EQ(KILN_FN(cuEventCreate)(&event, 0), CUDA_SUCCESS);
  for (const bool join : {false, true}) {
    ASSERT_EQ(begin(main.handle()), CUDA_SUCCESS);
    ASSERT_EQ(KILN_FN(cuEventRecord)(event, main.handle()), CUDA_SUCCESS);
    ASSERT_EQ(KILN_FN(cuStreamWaitEvent)(side.handle(), event, 0), CUDA_SUCCESS);
    ASSERT_EQ(launch(function, on(side.handle())), CUDA_SUCCESS);
    EXPECT_EQ(KILN_FN(cuEventQuery)(event), CUDA_ERROR_CAPTURED_EVENT);
    if (join) {
      ASSERT_EQ(KILN_FN(cuEventRecord)(event, side.handle()), CUDA_SUCCESS);
      ASSERT_EQ(KILN_FN(cuStreamWaitEvent)(main.handle(), event, 0), CUDA_SUCCESS);
    }
    EXPECT_EQ(end(main.handle()), join ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  }
}

TEST_F(Double, AGraphReplaysItsLaunchesAndTakesNewParameters) {
  auto* function = load_kernel(kWaitSource);
  const auto stream = cuda_->stream();
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  ASSERT_EQ(begin(stream.handle()), CUDA_SUCCESS);
  ASSERT_EQ(launch(function, on(stream.handle()), 1), CUDA_SUCCESS);
  auto config = on(stream.handle());
  config.gridDimX = 4;
  config.attrs = &attribute;
  config.numAttrs = 1;
  ASSERT_EQ(launch(function, config, 2), CUDA_SUCCESS);
  ASSERT_EQ(end(stream.handle()), CUDA_SUCCESS);

  CUgraphNode nodes[2];
  std::size_t count = 2;
  ASSERT_EQ(KILN_FN(cuGraphGetNodes)(graph_, nodes, &count), CUDA_SUCCESS);
  ASSERT_EQ(count, 2u);
  CUlaunchAttributeValue value{};
  ASSERT_EQ(KILN_FN(cuGraphKernelNodeGetAttribute)(nodes[1], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                                   &value),
            CUDA_SUCCESS);
  EXPECT_EQ(value.clusterDim.x, 2u);
  CUDA_KERNEL_NODE_PARAMS params{};
  ASSERT_EQ(KILN_FN(cuGraphKernelNodeGetParams)(nodes[1], &params), CUDA_SUCCESS);
  EXPECT_EQ(params.gridDimX, 4u);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(params.kernelParams[0]), 2u);

  CUgraphExec exec = nullptr;
  ASSERT_EQ(KILN_FN(cuGraphInstantiateWithFlags)(&exec, graph_, 0), CUDA_SUCCESS);
  driver_.forget();
  ASSERT_EQ(KILN_FN(cuGraphLaunch)(exec, stream.handle()), CUDA_SUCCESS);
  CUdeviceptr fresh = 7;
  void* arguments[] = {&fresh};
  params.kernelParams = arguments;
  params.gridDimX = 6;
  ASSERT_EQ(KILN_FN(cuGraphExecKernelNodeSetParams)(exec, nodes[1], &params), CUDA_SUCCESS);
  params.gridDimX = 5;
  EXPECT_EQ(KILN_FN(cuGraphExecKernelNodeSetParams)(exec, nodes[1], &params),
            CUDA_ERROR_INVALID_VALUE)
      << "not a multiple of the node's cluster";
  ASSERT_EQ(KILN_FN(cuGraphNodeSetEnabled)(exec, nodes[0], 0), CUDA_SUCCESS);
  fresh = 8;
  ASSERT_EQ(KILN_FN(cuGraphLaunch)(exec, stream.handle()), CUDA_SUCCESS);

  const auto seen = driver_.launches();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].origin, Origin::replayed);
  EXPECT_EQ(seen[0].argument<CUdeviceptr>(0), 1u);
  EXPECT_EQ(seen[1].argument<CUdeviceptr>(0), 2u);
  EXPECT_EQ(seen[2].argument<CUdeviceptr>(0), 7u);
  EXPECT_EQ(seen[2].grid[0], 6u);
  ASSERT_NE(seen[2].attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION), nullptr);

  EXPECT_EQ(KILN_FN(cuGraphDestroy)(graph_), CUDA_SUCCESS);
  ASSERT_EQ(KILN_FN(cuLibraryUnload)(library_), CUDA_SUCCESS);
  EXPECT_EQ(KILN_FN(cuGraphLaunch)(exec, stream.handle()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(KILN_FN(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
  EXPECT_EQ(driver_.live(Object::graph) + driver_.live(Object::graph_exec), 0u);
}

TEST_F(Double, MemoryHoldsWhatWasCopiedAndRefusesWhatIsOutside) {
  auto buffer = cuda_->upload(std::vector<int>{1, 2, 3});
  EXPECT_EQ(buffer.download<int>(), (std::vector<int>{1, 2, 3}));
  int word = 0;
  EXPECT_EQ(KILN_FN(cuMemcpyDtoH)(&word, buffer.address() + 9, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(KILN_FN(cuMemFree)(buffer.address() + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_.live(Object::allocation), 1u);
  // A captured copy is done by the graph, each time.
  const auto stream = cuda_->stream();
  int source = 4;
  const auto graph = cuda_->capture(stream, [&] {
    EXPECT_EQ(KILN_FN(cuMemcpyHtoDAsync)(buffer.address(), &source, 4, stream.handle()),
              CUDA_SUCCESS);
  });
  EXPECT_EQ(buffer.download<int>().front(), 1);
  source = 5;
  graph.launch(stream);
  EXPECT_EQ(buffer.download<int>().front(), 5);
}

}  // namespace
}  // namespace kiln::test
