// The way from a registered kernel to a loaded one, and everything that can fail on it.
#include <thread>

#include "fixture.hpp"
#include "runtime/driver_api.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln::test {
namespace {

using fake_driver::Object;

bool says(const std::string& message, std::string_view text) {
  return message.find(text) != std::string::npos;
}

class Loading : public FakeDriverFixture {};

// Without a context: the driver is opened by the Runtime alone.
class OpeningTheDriver : public RuntimeFixture {
 protected:
  std::string failure(ErrorCode code) {
    auto runtime = open();
    const auto device = runtime.device(0);
    EXPECT_FALSE(device);
    EXPECT_EQ(device ? ErrorCode::none : device.error().code(), code) << message_of(device);
    return message_of(device);
  }
  FakeDriver driver_;
};

TEST_F(OpeningTheDriver, DevicesAreWhatTheDriverSays) {
  driver_.set_device_count(2);
  driver_.set_compute_capability(1, 8, 6);
  driver_.set_device_attribute(1, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 84);
  driver_.set_device_attribute(1, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376);
  const auto devices = open().devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].architecture, "sm_90a");
  EXPECT_EQ(devices[0].sm_count, 132u);
  EXPECT_EQ(devices[0].shared_bytes_per_block, 232448u);
  EXPECT_EQ(devices[1].architecture, "sm_86");
  EXPECT_EQ(devices[1].sm_count, 84u);
  EXPECT_EQ(devices[1].shared_bytes_per_block, 101376u);
  EXPECT_EQ(devices[1].ordinal, 1);
}

TEST_F(OpeningTheDriver, AMissingFunctionIsNamed) {
#define KILN_FUNCTION(name, version) #name,
  for (const char* function : {KILN_DRIVER_FUNCTIONS(KILN_FUNCTION)}) {
#undef KILN_FUNCTION
    driver_.reset();
    driver_.hide(function);
    EXPECT_TRUE(says(failure(ErrorCode::no_device), "lacks " + std::string(function))) << function;
    EXPECT_EQ(driver_.calls("cuInit"), 0u) << function;
  }
}

TEST_F(OpeningTheDriver, ADriverOlderThanCuda12IsRefused) {
  driver_.set_driver_version(11080);
  EXPECT_EQ(installed_driver_version(), 11080);
  EXPECT_TRUE(says(failure(ErrorCode::no_device), "older than CUDA 12"));
  EXPECT_EQ(driver_.calls("cuInit"), 0u);
}

TEST_F(OpeningTheDriver, TheOldestDriverThatIsNeededIsEnough) {
  driver_.set_driver_version(12000);
  EXPECT_TRUE(open().device(0));
}

TEST_F(OpeningTheDriver, WithoutADeviceItSaysWhatToCheck) {
  driver_.set_device_count(0);
  EXPECT_TRUE(says(failure(ErrorCode::no_device), "sees no device"));
  EXPECT_TRUE(open().devices().empty());
}

TEST_F(OpeningTheDriver, TheStubIsNamed) {
  driver_.fail("cuGetProcAddress", CUDA_ERROR_STUB_LIBRARY);
  EXPECT_TRUE(says(failure(ErrorCode::no_device), "stub"));
}

TEST_F(OpeningTheDriver, AFailedStartIsTriedAgain) {
  driver_.fail("cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 1);
  auto runtime = open();
  const auto first = runtime.device(0);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code(), ErrorCode::driver_failed);
  EXPECT_EQ(first.error().driver_result(), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_TRUE(says(message_of(first), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
  EXPECT_TRUE(runtime.device(0));
  EXPECT_EQ(driver_.calls("cuInit"), 2u);
}

TEST_F(OpeningTheDriver, ADriverThatDoesNotStartNamesWhatToLookAt) {
  const std::pair<CUresult, const char*> answers[] = {
      {CUDA_ERROR_SYSTEM_NOT_READY, "nvidia-fabricmanager"},
      {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "is not of the version of the kernel's driver"},
      {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "cuda-compat"},
      {CUDA_ERROR_MPS_CONNECTION_FAILED, "CUDA_MPS_PIPE_DIRECTORY"},
      {CUDA_ERROR_UNKNOWN, "/dev/nvidia-uvm"},
  };
  for (const auto& [result, cure] : answers) {
    driver_.succeed("cuInit");
    driver_.fail("cuInit", result);
    auto runtime = open();
    const auto device = runtime.device(0);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().driver_result(), result);
    EXPECT_TRUE(says(message_of(device), cure)) << message_of(device);
    EXPECT_TRUE(says(message_of(runtime.warmup()), cure));
  }
}

// A child of a process that used CUDA may be told so by any call, the first one included.
TEST_F(OpeningTheDriver, AForkedChildIsToldSoByWhicheverCallRefuses) {
  for (const char* function : {"cuGetProcAddress", "cuInit"}) {
    driver_.reset();
    driver_.fail(function, CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_TRUE(says(failure(ErrorCode::no_device), "forked")) << function;
  }
}

TEST_F(Loading, AWarmupLoadsEverythingOnceAndGetIsARead) {
  auto runtime = runtime_with({kLayoutSource, kSharedSource, kWaitSource});
  const auto report = runtime.warmup();
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->failed, 0u);
  EXPECT_EQ(report->kernels.front().architecture, "sm_90a");
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 3u);
  EXPECT_EQ(driver_.live(Object::library), 3u);
  driver_.forget();
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(runtime.get({i}));
  for (const char* function : {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute",
                               "cuKernelGetAttribute", "cuDeviceGetAttribute", "cuInit"})
    EXPECT_EQ(driver_.calls(function), 0u) << function;
  EXPECT_EQ(driver_.calls("cuCtxGetCurrent"), 3u);
}

TEST_F(Loading, TheDynamicSharedLimitIsRaisedOnceToAllThatIsLeft) {
  driver_.set_device_attribute(0, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0);
  auto runtime = runtime_with({kSharedSource});
  const auto kernel = get(runtime);
  EXPECT_EQ(driver_.calls("cuKernelSetAttribute"), 1u) << "of clusters nothing is to be allowed";
  int limit = 0;
  ASSERT_EQ(driver_.symbol<decltype(cuKernelGetAttribute)>("cuKernelGetAttribute")(
                &limit, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.handle(), 0),
            CUDA_SUCCESS);
  EXPECT_EQ(limit, 232448 - 1024);
  auto launch = runtime.launches().prepare(kernel, {.block_threads = {256}, .shared_bytes = 231424},
                                           CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(driver_.calls("cuKernelSetAttribute"), 1u);
  EXPECT_EQ(driver_.launches().size(), 100u);
}

TEST_F(Loading, TheCodeIsInTheContextBeforeTheFirstLaunch) {
  auto runtime = runtime_with({kWaitSource});
  const auto kernel = get(runtime);
  auto launch = runtime.launches().prepare(kernel, {}, CUdeviceptr{0});
  ASSERT_TRUE(launch && launch->launch(nullptr));
  ASSERT_EQ(driver_.launches().size(), 1u);
  EXPECT_FALSE(driver_.launches()[0].loaded_module);
}

TEST_F(Loading, EveryFailingCallIsReportedWithItsResultAndLeavesNothing) {
  // Compiled before, so that each round is short.
  { (void)get(*std::make_unique<Runtime>(runtime_with({kSharedSource}))); }
  for (const char* function :
       {"cuLibraryLoadData", "cuLibraryGetKernel", "cuDeviceGetCount", "cuDeviceGet",
        "cuDeviceGetAttribute", "cuKernelGetAttribute", "cuKernelSetAttribute",
        "cuKernelGetFunction", "cuCtxGetCurrent", "cuCtxGetDevice"}) {
    {
      auto runtime = runtime_with({kSharedSource});
      ASSERT_TRUE(runtime.device(0));
      driver_.fail(function, CUDA_ERROR_OUT_OF_MEMORY);
      const auto kernel = runtime.get({0});
      ASSERT_FALSE(kernel) << function;
      EXPECT_EQ(kernel.error().code(), ErrorCode::driver_failed) << function;
      EXPECT_TRUE(says(message_of(kernel), "CUDA_ERROR_OUT_OF_MEMORY")) << message_of(kernel);
      EXPECT_EQ(kernel.error().driver_result(), CUDA_ERROR_OUT_OF_MEMORY) << function;
      EXPECT_TRUE(says(message_of(kernel), function)) << message_of(kernel);
      // Want of memory is no reason to doubt the driver's version.
      EXPECT_FALSE(says(message_of(kernel), "update it")) << message_of(kernel);
      driver_.succeed(function);
      EXPECT_TRUE(runtime.get({0})) << function << ": a failure is tried again";
    }
    EXPECT_EQ(driver_.live(Object::library), 0u) << function;
  }
}

TEST_F(Loading, WhatTheDriverRefusesIsUnsupportedWithBothVersions) {
  for (const auto result : {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU,
                            CUDA_ERROR_UNSUPPORTED_PTX_VERSION}) {
    driver_.fail("cuLibraryLoadData", result);
    driver_.set_driver_version(12080);
    auto runtime = runtime_with({kWaitSource});
    const auto kernel = runtime.get({0});
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code(), ErrorCode::unsupported);
    EXPECT_NE(message_of(kernel).find("the driver supports CUDA 12.8"), std::string::npos)
        << message_of(kernel);
    driver_.succeed("cuLibraryLoadData");
  }
}

TEST_F(Loading, AParameterThatOnlyTheDriverKnowsIsFound) {
  auto runtime = runtime_with({kLayoutSource});
  auto artifact = runtime.artifact({0}, "sm_90a");
  ASSERT_TRUE(artifact) << message_of(artifact);
  auto driver = DriverApi::load();
  ASSERT_TRUE(driver);
  EXPECT_TRUE(Library::load(*driver, *artifact, {}));
  artifact->facts.parameters.pop_back();
  const auto refused = Library::load(*driver, *artifact, {});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(says(message_of(refused), "4 parameters by the cubin and more by the driver"))
      << message_of(refused);
}

TEST_F(Loading, AFailureInAWarmupIsThatKernelsAlone) {
  auto runtime = runtime_with({kLayoutSource, kSharedSource, kWaitSource});
  driver_.fail("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY, 2);
  // One at a time, since each is loaded as soon as it is compiled, and the second is to fail.
  const auto report = runtime.warmup({.jobs = 1});
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->failed, 1u);
  EXPECT_TRUE(report->kernels[0].status);
  EXPECT_NE(message_of(report->kernels[1].status).find("CUDA_ERROR_OUT_OF_MEMORY"),
            std::string::npos);
  EXPECT_TRUE(report->kernels[2].status);
}

TEST_F(Loading, AGetInsideACaptureIsRefusedAndTheCaptureGoesOn) {
  auto runtime = runtime_with({kWaitSource});
  ASSERT_TRUE(runtime.artifact({0}, "sm_90a"));  // only the loading is left
  const auto stream = cuda_->stream();
  const auto begin = driver_.symbol<decltype(cuStreamBeginCapture)>("cuStreamBeginCapture_v2");
  const auto end = driver_.symbol<decltype(cuStreamEndCapture)>("cuStreamEndCapture");
  CUgraph graph = nullptr;
  ASSERT_EQ(begin(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  const auto cold = runtime.get({0});
  ASSERT_FALSE(cold);
  EXPECT_EQ(cold.error().code(), ErrorCode::capture_active);
  EXPECT_NE(message_of(cold).find("kernel plain"), std::string::npos);
  EXPECT_NE(message_of(cold).find("warmup"), std::string::npos);
  EXPECT_EQ(end(stream.handle(), &graph), CUDA_SUCCESS);

  ASSERT_TRUE(runtime.warmup());
  ASSERT_EQ(begin(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch && launch->launch(stream.handle()));
  EXPECT_EQ(end(stream.handle(), &graph), CUDA_SUCCESS);
  ASSERT_EQ(driver_.launches().size(), 1u);
  EXPECT_EQ(driver_.launches()[0].origin, fake_driver::Origin::captured);
}

// Loaded for its device, in another context or none: the first launch would load it into this one.
TEST_F(Loading, APreparationInsideACaptureLoadsNothingIntoTheContext) {
  auto runtime = runtime_with({kWaitSource});
  Kernel kernel;
  std::thread([&] { kernel = *runtime.get({0}, 0); }).join();  // without a context
  const auto begin = driver_.symbol<decltype(cuStreamBeginCapture)>("cuStreamBeginCapture_v2");
  const auto end = driver_.symbol<decltype(cuStreamEndCapture)>("cuStreamEndCapture");
  const auto stream = cuda_->stream();
  CUgraph graph = nullptr;
  ASSERT_EQ(begin(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  const auto refused = runtime.launches().prepare(kernel, {}, CUdeviceptr{0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::capture_active);
  EXPECT_TRUE(says(message_of(refused), "kernel plain")) << message_of(refused);
  EXPECT_TRUE(says(message_of(refused), "warmup")) << message_of(refused);
  EXPECT_EQ(driver_.calls("cuKernelGetFunction"), 0u);
  EXPECT_EQ(end(stream.handle(), &graph), CUDA_SUCCESS) << "the capture is whole";

  ASSERT_TRUE(runtime.launches().prepare(kernel, {}, CUdeviceptr{0}));
  ASSERT_EQ(begin(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  auto launch = runtime.launches().prepare(kernel, {}, CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  EXPECT_TRUE(launch->launch(stream.handle()));
  EXPECT_EQ(end(stream.handle(), &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuKernelGetFunction"), 1u);
  EXPECT_FALSE(driver_.launches().at(0).loaded_module);
}

}  // namespace
}  // namespace kiln::test
