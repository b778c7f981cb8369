// What stream 0 and the special handles mean to the library and to two builds of its caller, with
// and without CUDA_API_PER_THREAD_DEFAULT_STREAM. Trial T29; more of it is in
// launch_capture_gpu_test.cpp.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/gpu_test.hpp"
#include "support/stream_caller.hpp"

namespace kiln::test {
namespace {

// Waits for the host to open the gate, though not for ever, and says so.
constexpr std::string_view kGateSource = R"(
extern "C" __global__ void entry(const volatile unsigned* gate, unsigned* passed,
                                 long long most_cycles) {
  const long long start = clock64();
  while (*gate == 0 && clock64() - start < most_cycles) {}
  *passed = *gate != 0 ? 1 : 2;
}
)";
constexpr long long kMostCycles = 4'000'000'000;  // some seconds

constexpr std::string_view kLookSource = R"(
extern "C" __global__ void entry(const volatile unsigned* passed, unsigned* seen) {
  *seen = *passed + 10;
}
)";

// Memory of the host that the device reads, at one address for both.
class Gate {
 public:
  explicit Gate(const CudaDriver& driver) : driver_(driver) {
    KILN_CU(&driver_.functions(), cuMemHostAlloc, &memory_, sizeof(unsigned),
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    set(1);
  }
  Gate(const Gate&) = delete;
  ~Gate() {
    set(1);
    driver_.functions().cuMemFreeHost_(memory_);
  }
  void set(unsigned open) { std::atomic_ref(*static_cast<unsigned*>(memory_)).store(open); }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(memory_); }

 private:
  const CudaDriver& driver_;
  void* memory_ = nullptr;
};

class Event {
 public:
  explicit Event(const DriverFunctions& driver) : driver_(driver) {
    KILN_CU(&driver_, cuEventCreate, &handle_, CU_EVENT_DEFAULT);
  }
  Event(const Event&) = delete;
  ~Event() { driver_.cuEventDestroy_(handle_); }
  CUevent handle() const { return handle_; }
  void synchronize() const { KILN_CU(&driver_, cuEventSynchronize, handle_); }

 private:
  const DriverFunctions& driver_;
  CUevent handle_ = nullptr;
};

struct Handle {
  const char* name;
  CUstream stream;
  bool per_thread;
};
const Handle kHandles[] = {{"null", nullptr, false},
                           {"legacy", CU_STREAM_LEGACY, false},
                           {"per thread", CU_STREAM_PER_THREAD, true}};

class LaunchStreamsGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    add("gate.cu", kGateSource);
    add("look.cu", kLookSource);
    cuda().cuCtxGetCurrent_(&context_);
  }
  const DriverFunctions& cuda() const { return driver_->functions(); }

  CUcontext context_ = nullptr;
};

// The first work waits at the gate, in one of the default streams. The second looks whether the
// first has ended, from this thread or another, through the library or by the caller's own call.
// Only the per-thread streams of two threads are not ordered.
TEST_F(LaunchStreamsGpu, T29TheOrderOfDefaultStreamsDoesNotDependOnTheCallersBuild) {
  Gate gate(*driver_);
  auto passed = driver_->buffer(sizeof(unsigned));
  auto seen = driver_->buffer(sizeof(unsigned));
  const auto look_kernel = kernel({.name = "look", .source = "look.cu"});
  auto wait = launches().prepare(kernel({.name = "gate", .source = "gate.cu"}), {}, gate.address(),
                                 passed.address(), kMostCycles);
  auto look = launches().prepare(look_kernel, {}, passed.address(), seen.address());
  ASSERT_TRUE(wait) << message_of(wait);
  ASSERT_TRUE(look) << message_of(look);
  CUdeviceptr own_arguments[] = {passed.address(), seen.address()};
  void* own_table[] = {&own_arguments[0], &own_arguments[1]};
  // Everything once with the gate open, so that nothing is loaded behind a closed one.
  ASSERT_TRUE(wait->launch(nullptr) && look->launch(nullptr));
  for (const auto* caller : {&plain_caller, &per_thread_caller})
    ASSERT_EQ(caller->launch_kernel(reinterpret_cast<CUfunction>(look_kernel.handle()), own_table,
                                    nullptr),
              CUDA_SUCCESS);

  const auto run = [&](const StreamCaller& caller, const Handle& first, const Handle* second,
                       bool other_thread) {
    const bool second_per_thread =
        second != nullptr ? second->per_thread : caller.null_is_per_thread;
    const bool ordered = !(other_thread && first.per_thread && second_per_thread);
    passed.fill(0);
    seen.fill(0);
    gate.set(0);
    Event first_end(cuda());
    Event second_end(cuda());
    EXPECT_TRUE(caller.launch(*wait, first.stream));
    KILN_CU(&cuda(), cuEventRecord, first_end.handle(), first.stream);
    const auto enqueue_second = [&] {
      cuda().cuCtxSetCurrent_(context_);
      if (second != nullptr) {
        EXPECT_TRUE(caller.launch(*look, second->stream));
        KILN_CU(&cuda(), cuEventRecord, second_end.handle(), second->stream);
      } else {
        EXPECT_EQ(caller.launch_kernel(reinterpret_cast<CUfunction>(look_kernel.handle()),
                                       own_table, nullptr),
                  CUDA_SUCCESS);
        EXPECT_EQ(caller.record(second_end.handle(), nullptr), CUDA_SUCCESS);
      }
    };
    const auto open_gate = [&] {
      // Time for a second that wrongly does not wait; it changes nothing for one that does.
      if (ordered)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      else
        second_end.synchronize();
      gate.set(1);
    };
    if (other_thread) {
      std::atomic<bool> enqueued{false};
      std::thread thread([&] {
        enqueue_second();
        enqueued = true;
        second_end.synchronize();  // its per-thread stream goes with the thread
      });
      while (!enqueued) std::this_thread::yield();
      open_gate();
      thread.join();
    } else {
      enqueue_second();
      open_gate();
    }
    first_end.synchronize();
    second_end.synchronize();
    float milliseconds = 0;
    KILN_CU(&cuda(), cuEventElapsedTime, &milliseconds, first_end.handle(), second_end.handle());
    EXPECT_EQ(passed.download<unsigned>()[0], 1u) << "the gate was not opened in time";
    EXPECT_EQ(seen.download<unsigned>()[0], ordered ? 11u : 10u);
    EXPECT_EQ(milliseconds >= 0, ordered) << milliseconds;
  };

  for (const auto* caller : {&plain_caller, &per_thread_caller})
    for (const auto& first : kHandles)
      for (const auto* second :
           {static_cast<const Handle*>(nullptr), &kHandles[0], &kHandles[1], &kHandles[2]})
        for (const bool other_thread : {false, true}) {
          SCOPED_TRACE(std::string(caller->name) + ", first in " + first.name + ", then " +
                       (second != nullptr ? std::string("through the library in ") + second->name
                                          : "by itself in null") +
                       (other_thread ? " of another thread" : " of the same thread"));
          run(*caller, first, second, other_thread);
        }
}

// The driver captures what it takes for a per-thread stream and refuses the legacy one. The library
// takes null for the legacy stream, whatever its caller does.
TEST_F(LaunchStreamsGpu, T29CapturingDefaultStreamsFromBothBuildsOfTheCaller) {
  auto passed = driver_->buffer(sizeof(unsigned));
  auto seen = driver_->buffer(sizeof(unsigned));
  passed.fill(0);
  auto look = launches().prepare(kernel({.name = "look", .source = "look.cu"}), {},
                                 passed.address(), seen.address());
  ASSERT_TRUE(look) << message_of(look);
  for (const auto* caller : {&plain_caller, &per_thread_caller})
    for (const auto& handle : kHandles) {
      SCOPED_TRACE(std::string(caller->name) + ", " + handle.name);
      const bool per_thread =
          handle.per_thread || (handle.stream == nullptr && caller->null_is_per_thread);
      const auto began = caller->begin_capture(handle.stream);
      ASSERT_EQ(began == CUDA_SUCCESS, per_thread) << began;
      if (!per_thread) {
        EXPECT_EQ(caller->capture(*look, handle.stream).error().code(),
                  ErrorCode::invalid_argument);
        EXPECT_TRUE(caller->launch(*look, handle.stream)) << "a launch goes on";
        continue;
      }
      for (const auto legacy : {CUstream{nullptr}, CU_STREAM_LEGACY})
        EXPECT_EQ(caller->capture(*look, legacy).error().code(), ErrorCode::capture_active);
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      EXPECT_EQ(caller->is_capturing(handle.stream, &status), CUDA_SUCCESS);
      EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
      const auto captured = caller->capture(*look, CU_STREAM_PER_THREAD);
      EXPECT_TRUE(captured) << message_of(captured);
      CUgraph graph = nullptr;
      ASSERT_EQ(caller->end_capture(handle.stream, &graph), CUDA_SUCCESS);
      const Graph instance(driver_->shared_functions(), graph);
      seen.fill(0);
      const auto stream = driver_->stream();
      instance.launch(stream);
      stream.synchronize();
      EXPECT_EQ(seen.download<unsigned>()[0], 10u);

      // A launch into the legacy stream would join the capture. It ends it, with an error of ours.
      for (const auto legacy : {CUstream{nullptr}, CU_STREAM_LEGACY}) {
        ASSERT_EQ(caller->begin_capture(handle.stream), CUDA_SUCCESS);
        EXPECT_EQ(caller->launch(*look, legacy).code(), ErrorCode::capture_active);
        graph = nullptr;
        static_cast<void>(caller->end_capture(handle.stream, &graph));
        if (graph != nullptr) cuda().cuGraphDestroy_(graph);
      }
    }
}

}  // namespace
}  // namespace kiln::test
