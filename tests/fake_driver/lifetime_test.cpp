// Who keeps what alive, several contexts and devices, and what a fork or an exit leaves.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "fixture.hpp"
#include "runtime/driver_api.hpp"
#include "runtime/graph_keep.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln::test {
namespace {

using fake_driver::Object;

class Lifetime : public FakeDriverFixture {};

// The exit code of a child process that does `work`.
int in_child(const std::function<int()>& work) {
  const auto child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Lifetime, AKernelOutlivesItsRuntimeAndUnloadsOnce) {
  Kernel kernel;
  {
    auto runtime = runtime_with({kWaitSource});
    kernel = get(runtime);
  }
  EXPECT_EQ(driver_.calls("cuLibraryUnload"), 0u);
  EXPECT_EQ(driver_.live(Object::library), 1u);
  auto copy = kernel;
  kernel = {};
  EXPECT_EQ(driver_.calls("cuLibraryUnload"), 0u);
  copy = {};
  EXPECT_EQ(driver_.calls("cuLibraryUnload"), 1u);
  EXPECT_EQ(driver_.live(Object::library), 0u);
}

TEST_F(Lifetime, ADescriptorOutlivesRuntimeAndKernelAndStillLaunches) {
  LaunchDescriptor launch;
  {
    auto runtime = runtime_with({kWaitSource});
    auto prepared = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{64});
    ASSERT_TRUE(prepared);
    launch = *std::move(prepared);
  }
  ASSERT_TRUE(launch.launch(nullptr));
  EXPECT_EQ(driver_.launches().at(0).argument<CUdeviceptr>(0), 64u);
  EXPECT_EQ(driver_.calls("cuLibraryUnload"), 0u);
  launch = {};
  EXPECT_EQ(driver_.live(Object::library), 0u);
}

// By launch() and by capture(). The driver tells of a graph's end where nobody may call it.
TEST_F(Lifetime, AGraphAndItsInstanceKeepTheKernelsThatTheyLaunch) {
  const auto stream = cuda_->stream();
  std::optional<Graph> graph;
  {
    auto runtime = runtime_with({kWaitSource, kLayoutSource, kSharedSource});
    auto plain = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{1});
    auto found = runtime.launches().prepare(get(runtime, 2), {}, CUdeviceptr{2});
    ASSERT_TRUE(plain && found && get(runtime, 1));
    graph.emplace(cuda_->capture(stream, [&] {
      ASSERT_TRUE(plain->launch(stream.handle()));
      ASSERT_TRUE(plain->launch(stream.handle()));
      ASSERT_TRUE(found->capture(stream.handle()));
    }));
  }
  EXPECT_EQ(driver_.live(Object::library), 2u) << "only what was not captured is gone";
  driver_.forget();
  graph->launch(stream);
  EXPECT_EQ(driver_.launches().size(), 3u);
  graph.reset();
  EXPECT_EQ(driver_.live(Object::library), 2u) << "nobody called Kiln since";
  { const auto later = open(); }
  EXPECT_EQ(driver_.live(Object::library), 0u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(Lifetime, AnInstanceThatOutlivesItsGraphKeepsTheKernels) {
  const auto stream = cuda_->stream();
  const auto& cuda = cuda_->functions();
  CUgraph graph = nullptr;
  CUgraphExec instance = nullptr;
  {
    auto runtime = runtime_with({kWaitSource});
    auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{1});
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_EQ(cuda.cuStreamBeginCapture_(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    ASSERT_TRUE(launch->launch(stream.handle()));
    ASSERT_EQ(cuda.cuStreamEndCapture_(stream.handle(), &graph), 0);
  }
  ASSERT_EQ(cuda.cuGraphInstantiateWithFlags_(&instance, graph, 0), 0);
  ASSERT_EQ(cuda.cuGraphDestroy_(graph), 0);
  { const auto later = open(); }
  driver_.forget();
  EXPECT_EQ(cuda.cuGraphLaunch_(instance, stream.handle()), CUDA_SUCCESS);
  EXPECT_EQ(driver_.launches().size(), 1u);
  ASSERT_EQ(cuda.cuGraphExecDestroy_(instance), 0);
  { const auto later = open(); }
  EXPECT_EQ(driver_.live(Object::library), 0u);
}

TEST_F(Lifetime, ACaptureThatComesToNothingKeepsNothing) {
  const auto stream = cuda_->stream();
  const auto& cuda = cuda_->functions();
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{1});
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_EQ(cuda.cuStreamBeginCapture_(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
  ASSERT_TRUE(launch->launch(stream.handle()));
  CUdeviceptr memory = 0;
  ASSERT_NE(cuda.cuMemAlloc_(&memory, 1), CUDA_SUCCESS) << "which spoils the capture";
  CUgraph graph = nullptr;
  ASSERT_NE(cuda.cuStreamEndCapture_(stream.handle(), &graph), CUDA_SUCCESS);
  *launch = {};
  { const auto gone = std::move(runtime); }
  { const auto later = open(); }
  EXPECT_EQ(driver_.live(Object::library), 0u);
}

// A server that captures anew at each step opens no Runtime in between.
TEST_F(Lifetime, GraphsThatAreMadeAnewLeaveNoMoreAndMore) {
  const auto& cuda = cuda_->functions();
  auto runtime = runtime_with({kWaitSource});
  const auto artifact = runtime.artifact({0}, "sm_90a");
  ASSERT_TRUE(artifact) << message_of(artifact);
  auto driver = DriverApi::load();
  ASSERT_TRUE(driver);
  const auto library = Library::load(*driver, *artifact, {});
  ASSERT_TRUE(library) << message_of(library);
  const auto kernel = LoadedKernel::prepare(*library, 0);
  ASSERT_TRUE(kernel) << message_of(kernel);
  const auto stream = cuda_->stream();
  for (int i = 0; i < 100; ++i) {
    CUgraph graph = nullptr;
    ASSERT_EQ(cuda.cuStreamBeginCapture_(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    ASSERT_EQ(cuda.cuStreamEndCapture_(stream.handle(), &graph), 0);
    for (int launch = 0; launch < 3; ++launch) ASSERT_TRUE(keep_in_graph(graph, *kernel));
    ASSERT_EQ(cuda.cuGraphDestroy_(graph), 0);
  }
  EXPECT_LE(kernel->use_count(), 1 + 3);
  { const auto later = open(); }
  EXPECT_EQ(kernel->use_count(), 1);
}

// Nothing that is done in a capture unloads what graphs left.
TEST_F(Lifetime, WhatGraphsLeftDoesNotGoInTheMiddleOfACapture) {
  const auto stream = cuda_->stream();
  {
    auto runtime = runtime_with({kWaitSource});
    auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{1});
    ASSERT_TRUE(launch) << message_of(launch);
    cuda_->capture(stream, [&] { ASSERT_TRUE(launch->launch(stream.handle())); }).launch(stream);
  }
  std::optional<Runtime> other(runtime_with({kSharedSource}));
  auto runtime = runtime_with({kWaitSource, kLayoutSource});
  ASSERT_TRUE(get(*other) && get(runtime));
  {
    auto runtime_of_graph = runtime_with({kWaitSource});
    auto launch = runtime_of_graph.launches().prepare(get(runtime_of_graph), {}, CUdeviceptr{1});
    ASSERT_TRUE(launch) << message_of(launch);
    cuda_->capture(stream, [&] { ASSERT_TRUE(launch->launch(stream.handle())); }).launch(stream);
  }
  const auto left = driver_.live(Object::library);
  auto apart = cuda_->stream(CU_STREAM_NON_BLOCKING);  // whose capture nobody sees
  const auto graph = cuda_->capture(apart, [&] {
    auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{1});
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_TRUE(launch->launch(apart.handle()));
    ASSERT_TRUE(launch->capture(apart.handle()));
    *launch = {};
    ASSERT_TRUE(get(runtime, 1));
    other.reset();
  });
  EXPECT_EQ(driver_.live(Object::library), left) << "one came, one went";
  { const auto later = open(); }
  EXPECT_EQ(driver_.live(Object::library), left - 1);
}

TEST_F(Lifetime, ARuntimeUnloadsAllThatItLoaded) {
  {
    auto runtime = runtime_with({kWaitSource, kSharedSource, kLayoutSource});
    ASSERT_TRUE(runtime.warmup());
    EXPECT_EQ(driver_.live(Object::library), 3u);
  }
  EXPECT_EQ(driver_.calls("cuLibraryUnload"), 3u);
  EXPECT_EQ(driver_.live(Object::library), 0u);
}

TEST_F(Lifetime, AFailedUnloadIsLoggedAndNothingElse) {
  {
    auto runtime = runtime_with({kWaitSource});
    (void)get(runtime);
    driver_.fail("cuLibraryUnload", CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  EXPECT_EQ(warnings_with("CUDA_ERROR_ILLEGAL_ADDRESS"), 1u);
}

TEST_F(Lifetime, OneModuleServesTwoContextsOfADevice) {
  auto runtime = runtime_with({kWaitSource});
  std::vector<CUcontext> contexts;
  for (int i = 0; i < 2; ++i) {
    const auto context = cuda_->second_context();
    auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
    ASSERT_TRUE(launch && launch->launch(nullptr));
    contexts.push_back(driver_.launches().back().context);
    EXPECT_FALSE(driver_.launches().back().loaded_module) << "context " << i;
  }
  EXPECT_NE(contexts[0], contexts[1]);
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(driver_.calls("cuKernelSetAttribute"), 2u);
}

TEST_F(Lifetime, TwoDevicesOfOneArchitectureShareAModule) {
  driver_.set_device_count(2);
  auto runtime = runtime_with({kSharedSource});
  ASSERT_TRUE(runtime.warmup());
  EXPECT_EQ(driver_.calls("cuKernelSetAttribute"), 2u);
  CUcontext context = nullptr;
  ASSERT_EQ(
      driver_.symbol<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 1),
      CUDA_SUCCESS);
  std::thread([&] {
    driver_.symbol<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context);
    const auto kernel = get(runtime);
    EXPECT_EQ(kernel.device(), 1);
    auto launch = runtime.launches().prepare(
        kernel, {.block_threads = {256}, .shared_bytes = 200 << 10}, CUdeviceptr{0});
    ASSERT_TRUE(launch) << message_of(launch);
    EXPECT_TRUE(launch->launch(nullptr));
  }).join();
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(driver_.calls("cuKernelSetAttribute"), 4u);
  ASSERT_EQ(driver_.launches().size(), 1u);
  EXPECT_EQ(driver_.launches()[0].device, 1);
  EXPECT_FALSE(driver_.launches()[0].loaded_module);
}

TEST_F(Lifetime, TwoArchitecturesLoadAModuleEach) {
  driver_.set_device_count(2);
  driver_.set_compute_capability(1, 8, 0);
  auto runtime = runtime_with({kSharedSource});
  EXPECT_EQ(get(runtime).facts().architecture, "sm_90a");
  const auto other = runtime.get({0}, 1);
  ASSERT_TRUE(other) << message_of(other);
  EXPECT_EQ(other->facts().architecture, "sm_80");
  EXPECT_EQ(driver_.live(Object::library), 2u);
}

TEST_F(Lifetime, AThreadWithoutAContextIsToldSo) {
  auto runtime = runtime_with({kWaitSource});
  std::thread([&] {
    const auto kernel = runtime.get({0});
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code(), ErrorCode::no_device);
  }).join();
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 0u);
}

// As after a reset: what was in the context is gone with it, kernels and descriptors are not.
TEST_F(Lifetime, ADescriptorOutlivesTheContextThatItWasPreparedIn) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  cuda_.reset();
  const auto gone = launch->launch(nullptr);
  EXPECT_EQ(gone.code(), ErrorCode::driver_failed) << message_of(gone);
  make_current();
  ASSERT_TRUE(runtime.warmup());
  ASSERT_TRUE(launch->launch(nullptr));
  ASSERT_EQ(driver_.launches().size(), 1u);
  EXPECT_FALSE(driver_.launches()[0].loaded_module) << "the warmup did it";
  EXPECT_EQ(driver_.calls("cuLibraryLoadData"), 0u);
}

TEST_F(Lifetime, AForkedChildIsToldSoAndNeverCallsTheDriver) {
  std::optional<Runtime> runtime(runtime_with({kWaitSource}));
  auto kernel = get(*runtime);
  auto launch = runtime->launches().prepare(kernel, {}, CUdeviceptr{0});
  ASSERT_TRUE(launch);
  EXPECT_EQ(in_child([&] {
              driver_.forget();
              int wrong = 0;
              if (launch->launch(nullptr).code() != ErrorCode::no_device) wrong |= 1;
              const auto again = runtime->get({0});
              if (again || again.error().code() != ErrorCode::no_device) wrong |= 2;
              const auto fresh = open().device(0);
              if (fresh || fresh.error().code() != ErrorCode::no_device) wrong |= 4;
              *launch = {};
              kernel = {};
              runtime.reset();
              if (driver_.calls("cuLibraryUnload") != 0) wrong |= 8;
              if (driver_.calls("cuLaunchKernelEx") != 0) wrong |= 16;
              return wrong;
            }),
            0);
  EXPECT_TRUE(launch->launch(nullptr)) << "the parent goes on";
}

// Nobody has started the driver yet, so that a child can.
class Unstarted : public RuntimeFixture {
 protected:
  FakeDriver driver_;
};

// Trial T16 (a); on a real driver in tests/gpu/fork_gpu_test.cpp.
TEST_F(Unstarted, T16WhatNamesAnArchitectureLeavesCudaToTheForkedChild) {
#ifdef KILN_SANITIZE
  if (std::string_view(KILN_SANITIZE) == "thread")
    GTEST_SKIP() << "the thread sanitizer takes threads that ended in the parent for the child's";
#endif
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source("wait.cu", kWaitSource));
  const auto id = runtime.add(plain_spec("wait.cu"));
  ASSERT_TRUE(id) << message_of(id);
  ASSERT_TRUE(runtime.look_up(*id, "sm_90a"));
  ASSERT_TRUE(runtime.warmup({.architectures = {"sm_90a"}}));
  CUcontext context = nullptr;
  EXPECT_EQ(driver_.symbol<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent")(&context),
            CUDA_ERROR_NOT_INITIALIZED);
  const auto launch_here = [&] {
    const auto cuda = CudaDriver::open();
    if (!cuda) return 1;
    const auto kernel = runtime.get(*id);
    if (!kernel) return 2;
    auto launch = runtime.launches().prepare(*kernel, {}, CUdeviceptr{0});
    if (!launch || !launch->launch(nullptr)) return 3;
    return driver_.launches().size() == 1 && runtime.counters().compiles == 1 ? 0 : 4;
  };
  EXPECT_EQ(in_child(launch_here), 0);
  EXPECT_EQ(in_child(launch_here), 0);
  EXPECT_EQ(launch_here(), 0) << "the parent can, after its children";
}

// The driver goes at exit, before what was there earlier than it.
class Exit : public Unstarted {
 protected:
  inline static Kernel last_kernel;
  inline static const FakeDriver* last_driver = nullptr;
  inline static std::vector<std::string>* last_warnings = nullptr;
};

TEST_F(Exit, AKernelThatGoesAfterTheDriverIsSilent) {
  const auto code = in_child([&]() -> int {
    std::atexit([] {  // runs after the driver's own, being registered before
      last_kernel = {};
      const auto late = last_driver->calls_after_exit();
      const auto quiet = last_warnings->empty();
      // The unload, between two changes of the thread's capture mode.
      ::_exit(quiet && late == 3 && last_driver->calls("cuLibraryUnload") == 1 ? 0 : 1);
    });
    auto cuda = CudaDriver::open();
    if (!cuda) return 2;
    {
      auto runtime = open();
      if (!runtime.add_source("wait.cu", kWaitSource)) return 3;
      const auto id = runtime.add(plain_spec("wait.cu"));
      if (!id) return 4;
      const auto kernel = runtime.get(*id);
      if (!kernel) return 5;
      last_kernel = *kernel;
    }
    if (driver_.calls("cuLibraryUnload") != 0) return 7;  // the last owner is the kernel
    last_driver = &driver_;
    last_warnings = &warnings_;
    std::exit(6);
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Exit, WhatWentBeforeLeavesNoCallForLater) {
  const auto code = in_child([&]() -> int {
    std::atexit([] { ::_exit(static_cast<int>(last_driver->calls_after_exit())); });
    last_driver = &driver_;
    {
      auto cuda = CudaDriver::open();
      if (!cuda) return 102;
      auto runtime = open();
      if (!runtime.add_source("wait.cu", kWaitSource)) return 103;
      const auto id = runtime.add(plain_spec("wait.cu"));
      if (!id || !runtime.get(*id)) return 104;
    }
    if (driver_.calls("cuLibraryUnload") != 1) return 105;
    std::exit(106);
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace kiln::test
