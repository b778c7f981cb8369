// The plain driver for tests and benchmarks: memory, streams, graphs, events, contexts. Opened at
// run time, so that the binaries start without a driver; a call that fails ends the process, with
// its name and result.
//
// Threads: one. Lifetime: everything made here goes before the CudaDriver, and what belongs to a
// second context before that context.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::test {

#define KILN_TEST_DRIVER_FUNCTIONS(KILN_FUNCTION) \
  KILN_FUNCTION(cuInit)                           \
  KILN_FUNCTION(cuGetErrorName)                   \
  KILN_FUNCTION(cuDeviceGet)                      \
  KILN_FUNCTION(cuDeviceGetCount)                 \
  KILN_FUNCTION(cuDevicePrimaryCtxRetain)         \
  KILN_FUNCTION(cuDevicePrimaryCtxRelease)        \
  KILN_FUNCTION(cuCtxSetCurrent)                  \
  KILN_FUNCTION(cuCtxGetCurrent)                  \
  KILN_FUNCTION(cuCtxPopCurrent)                  \
  KILN_FUNCTION(cuCtxCreate)                      \
  KILN_FUNCTION(cuCtxDestroy)                     \
  KILN_FUNCTION(cuMemAlloc)                       \
  KILN_FUNCTION(cuMemFree)                        \
  KILN_FUNCTION(cuMemGetInfo)                     \
  KILN_FUNCTION(cuMemHostAlloc)                   \
  KILN_FUNCTION(cuMemFreeHost)                    \
  KILN_FUNCTION(cuMemcpyHtoD)                     \
  KILN_FUNCTION(cuMemcpyDtoH)                     \
  KILN_FUNCTION(cuMemsetD8)                       \
  KILN_FUNCTION(cuStreamCreate)                   \
  KILN_FUNCTION(cuStreamDestroy)                  \
  KILN_FUNCTION(cuStreamSynchronize)              \
  KILN_FUNCTION(cuStreamQuery)                    \
  KILN_FUNCTION(cuStreamBeginCapture)             \
  KILN_FUNCTION(cuStreamEndCapture)               \
  KILN_FUNCTION(cuStreamIsCapturing)              \
  KILN_FUNCTION(cuGraphInstantiateWithFlags)      \
  KILN_FUNCTION(cuGraphClone)                     \
  KILN_FUNCTION(cuGraphDestroy)                   \
  KILN_FUNCTION(cuGraphLaunch)                    \
  KILN_FUNCTION(cuLaunchKernelEx)                 \
  KILN_FUNCTION(cuGraphExecDestroy)               \
  KILN_FUNCTION(cuEventCreate)                    \
  KILN_FUNCTION(cuEventRecord)                    \
  KILN_FUNCTION(cuEventRecordWithFlags)           \
  KILN_FUNCTION(cuEventSynchronize)               \
  KILN_FUNCTION(cuEventElapsedTime)               \
  KILN_FUNCTION(cuEventDestroy)

struct DriverFunctions {
#define KILN_FUNCTION(name) decltype(&::name) name##_ = nullptr;
  KILN_TEST_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION

  void check(CUresult result, const char* call) const {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    cuGetErrorName_(result, &name);
    std::fprintf(stderr, "%s: %s\n", call, name != nullptr ? name : "unknown");
    std::abort();
  }
};

#define KILN_CU(functions, name, ...) (functions)->check((functions)->name##_(__VA_ARGS__), #name)

/// Device memory.
class DeviceBuffer {
 public:
  DeviceBuffer(std::shared_ptr<const DriverFunctions> driver, std::size_t bytes)
      : driver_(std::move(driver)), bytes_(bytes) {
    KILN_CU(driver_, cuMemAlloc, &address_, bytes > 0 ? bytes : 1);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : driver_(std::move(other.driver_)),
        address_(std::exchange(other.address_, 0)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (address_ != 0) driver_->cuMemFree_(address_);
  }

  CUdeviceptr address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  template <class T = void>
  T* pointer(std::size_t offset_bytes = 0) const noexcept {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address_ + offset_bytes));
  }

  // Both may still be under way when the driver's call is over, and streams that do not wait for
  // the legacy one would run ahead of them.
  void fill(unsigned char byte) {
    KILN_CU(driver_, cuMemsetD8, address_, byte, bytes_);
    KILN_CU(driver_, cuStreamSynchronize, CU_STREAM_LEGACY);
  }
  template <class T>
  void assign(const std::vector<T>& values) {
    write(0, values.data(), values.size() * sizeof(T));
  }
  void write(std::size_t offset, const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    KILN_CU(driver_, cuMemcpyHtoD, address_ + offset, data, bytes);
    KILN_CU(driver_, cuStreamSynchronize, CU_STREAM_LEGACY);
  }
  /// The whole buffer.
  template <class T>
  std::vector<T> download() const {
    return download<T>(0, bytes_ / sizeof(T));
  }
  template <class T>
  std::vector<T> download(std::size_t offset_bytes, std::size_t count) const {
    std::vector<T> values(count);
    if (count > 0)
      KILN_CU(driver_, cuMemcpyDtoH, values.data(), address_ + offset_bytes, count * sizeof(T));
    return values;
  }

 private:
  std::shared_ptr<const DriverFunctions> driver_;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
};

/// By default a stream that waits for the legacy default stream, so that copies need no care.
class Stream {
 public:
  explicit Stream(std::shared_ptr<const DriverFunctions> driver, unsigned flags = CU_STREAM_DEFAULT)
      : driver_(std::move(driver)) {
    KILN_CU(driver_, cuStreamCreate, &handle_, flags);
  }
  Stream(Stream&& other) noexcept
      : driver_(std::move(other.driver_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (handle_ != nullptr) driver_->cuStreamDestroy_(handle_);
  }
  CUstream handle() const noexcept { return handle_; }
  void synchronize() const { KILN_CU(driver_, cuStreamSynchronize, handle_); }

 private:
  std::shared_ptr<const DriverFunctions> driver_;
  CUstream handle_ = nullptr;
};

/// A captured graph and an instance of it, which refers to its nodes.
class Graph {
 public:
  Graph(std::shared_ptr<const DriverFunctions> driver, CUgraph graph)
      : driver_(std::move(driver)), graph_(graph) {
    KILN_CU(driver_, cuGraphInstantiateWithFlags, &handle_, graph_, 0);
  }
  Graph(Graph&& other) noexcept
      : driver_(std::move(other.driver_)),
        graph_(std::exchange(other.graph_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;
  ~Graph() {
    if (handle_ != nullptr) driver_->cuGraphExecDestroy_(handle_);
    if (graph_ != nullptr) driver_->cuGraphDestroy_(graph_);
  }
  void launch(const Stream& stream) const {
    KILN_CU(driver_, cuGraphLaunch, handle_, stream.handle());
  }
  CUgraphExec handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<const DriverFunctions> driver_;
  CUgraph graph_ = nullptr;
  CUgraphExec handle_ = nullptr;
};

/// Two events that are nodes of a graph, and the time between them.
class Interval {
 public:
  explicit Interval(std::shared_ptr<const DriverFunctions> driver) : driver_(std::move(driver)) {
    for (CUevent& event : events_) KILN_CU(driver_, cuEventCreate, &event, CU_EVENT_DEFAULT);
  }
  Interval(const Interval&) = delete;
  Interval& operator=(const Interval&) = delete;
  ~Interval() {
    for (CUevent event : events_) driver_->cuEventDestroy_(event);
  }
  /// The graph that `stream` captures has one before and one behind what `work` enqueues.
  template <class Work>
  void around(const Stream& stream, Work&& work) const {
    record(events_[0], stream);
    std::forward<Work>(work)();
    record(events_[1], stream);
  }
  /// Microseconds in the last replay, which it waits for.
  double microseconds() const {
    float milliseconds = 0;
    KILN_CU(driver_, cuEventSynchronize, events_[1]);
    KILN_CU(driver_, cuEventElapsedTime, &milliseconds, events_[0], events_[1]);
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  void record(CUevent event, const Stream& stream) const {
    KILN_CU(driver_, cuEventRecordWithFlags, event, stream.handle(), CU_EVENT_RECORD_EXTERNAL);
  }
  std::shared_ptr<const DriverFunctions> driver_;
  CUevent events_[2] = {};
};

/// A context of its own, current while it lives.
class SecondContext {
 public:
  SecondContext(std::shared_ptr<const DriverFunctions> driver, CUdevice device)
      : driver_(std::move(driver)) {
#if CUDA_VERSION >= 13000
    KILN_CU(driver_, cuCtxCreate, &handle_, nullptr, 0, device);
#else
    KILN_CU(driver_, cuCtxCreate, &handle_, 0, device);
#endif
  }
  SecondContext(SecondContext&& other) noexcept
      : driver_(std::move(other.driver_)), handle_(std::exchange(other.handle_, nullptr)) {}
  SecondContext& operator=(SecondContext&&) = delete;
  ~SecondContext() {
    if (handle_ == nullptr) return;
    CUcontext popped = nullptr;
    driver_->cuCtxPopCurrent_(&popped);
    driver_->cuCtxDestroy_(handle_);
  }

 private:
  std::shared_ptr<const DriverFunctions> driver_;
  CUcontext handle_ = nullptr;
};

/// The first device with its primary context current.
class CudaDriver {
 public:
  /// Errors  no_device, with what is missing
  static Result<CudaDriver> open() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return missing("no CUDA driver: libcuda.so.1 cannot be opened");
    auto functions = std::make_shared<DriverFunctions>();
// cuda.h renames some functions by macro; the second step spells the symbol after expansion.
#define KILN_SYMBOL_OF(name) #name
#define KILN_FUNCTION(name)                                                        \
  functions->name##_ =                                                             \
      reinterpret_cast<decltype(&::name)>(::dlsym(library, KILN_SYMBOL_OF(name))); \
  if (functions->name##_ == nullptr)                                               \
    return missing(                                                                \
        "the CUDA driver is too old: it has "                                      \
        "no " #name);
    KILN_TEST_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION
#undef KILN_SYMBOL_OF
    int count = 0;
    if (functions->cuInit_(0) != CUDA_SUCCESS ||
        functions->cuDeviceGetCount_(&count) != CUDA_SUCCESS || count == 0)
      return missing("the CUDA driver sees no device");
    return CudaDriver(std::move(functions));
  }
  CudaDriver(CudaDriver&& other) noexcept
      : driver_(std::move(other.driver_)), device_(other.device_) {}
  CudaDriver& operator=(CudaDriver&&) = delete;
  ~CudaDriver() {
    if (driver_ != nullptr) driver_->cuDevicePrimaryCtxRelease_(device_);
  }

  DeviceBuffer buffer(std::size_t bytes) const {
    return {driver_, bytes};
  }
  template <class T>
  DeviceBuffer upload(const std::vector<T>& values) const {
    DeviceBuffer made(driver_, values.size() * sizeof(T));
    made.assign(values);
    return made;
  }
  Stream stream(unsigned flags = CU_STREAM_DEFAULT) const {
    return Stream(driver_, flags);
  }
  const DriverFunctions& functions() const noexcept {
    return *driver_;
  }
  const std::shared_ptr<const DriverFunctions>& shared_functions() const noexcept {
    return driver_;
  }
  SecondContext second_context() const {
    return SecondContext(driver_, device_);
  }

  /// What `work` enqueues on `stream`, as a graph.
  template <class Work>
  Graph capture(const Stream& stream, Work&& work) const {
    KILN_CU(driver_, cuStreamBeginCapture, stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    std::forward<Work>(work)();
    CUgraph graph = nullptr;
    KILN_CU(driver_, cuStreamEndCapture, stream.handle(), &graph);
    return {driver_, graph};
  }

  /// Microseconds on the device between the start and the end of what `work` enqueues on `stream`.
  template <class Work>
  double time(const Stream& stream, Work&& work) const {
    CUevent start = nullptr;
    CUevent end = nullptr;
    KILN_CU(driver_, cuEventCreate, &start, CU_EVENT_DEFAULT);
    KILN_CU(driver_, cuEventCreate, &end, CU_EVENT_DEFAULT);
    KILN_CU(driver_, cuEventRecord, start, stream.handle());
    std::forward<Work>(work)();
    KILN_CU(driver_, cuEventRecord, end, stream.handle());
    KILN_CU(driver_, cuEventSynchronize, end);
    float milliseconds = 0;
    KILN_CU(driver_, cuEventElapsedTime, &milliseconds, start, end);
    driver_->cuEventDestroy_(start);
    driver_->cuEventDestroy_(end);
    return 1000.0 * static_cast<double>(milliseconds);
  }

  std::size_t free_bytes() const {
    std::size_t free = 0;
    std::size_t total = 0;
    KILN_CU(driver_, cuMemGetInfo, &free, &total);
    return free;
  }

 private:
  explicit CudaDriver(std::shared_ptr<const DriverFunctions> driver) : driver_(std::move(driver)) {
    CUcontext context = nullptr;
    KILN_CU(driver_, cuDeviceGet, &device_, 0);
    KILN_CU(driver_, cuDevicePrimaryCtxRetain, &context, device_);
    KILN_CU(driver_, cuCtxSetCurrent, context);
  }
  static Error missing(std::string message) {
    return {ErrorCode::no_device, std::move(message)};
  }

  std::shared_ptr<const DriverFunctions> driver_;
  CUdevice device_ = 0;
};

}  // namespace kiln::test

/// Skips a test, with the reason, on a machine without a GPU.
#define KILN_REQUIRES_GPU()                                          \
  if (const auto driver = ::kiln::test::CudaDriver::open(); !driver) \
  GTEST_SKIP() << driver.error().message()
