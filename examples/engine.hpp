// What an engine has of its own and Kiln leaves alone: a context, device memory, a stream, graphs.
// Here straight on the driver, opened at run time, so that the examples build and start on machines
// without a GPU. A driver call that fails ends the program: an example has nobody to tell.
//
// Threads: one.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <kiln/error.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace engine {

inline void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s failed with CUresult %d\n", call, static_cast<int>(result));
  std::exit(1);
}

template <class Function>
Function symbol(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* const found = library == nullptr ? nullptr : ::dlsym(library, name);
  must(found == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS, name);
  return reinterpret_cast<Function>(found);
}

// cuda.h renames some functions by macro; the inner step spells the symbol after expansion.
#define ENGINE_SYMBOL_INNER(name) ::engine::symbol<decltype(&::name)>(#name)
#define ENGINE_SYMBOL(name) ENGINE_SYMBOL_INNER(name)
#define ENGINE_CALL(name, ...) ::engine::must(ENGINE_SYMBOL(name)(__VA_ARGS__), #name)

/// Makes device 0's primary context current. Call it where Runtime::device() says there is one.
inline void use_first_device() {
  CUcontext context = nullptr;
  ENGINE_CALL(cuInit, 0);
  ENGINE_CALL(cuDevicePrimaryCtxRetain, &context, 0);
  ENGINE_CALL(cuCtxSetCurrent, context);
}

/// `count` values of T on the device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    ENGINE_CALL(cuMemAlloc, &address_, count * sizeof(T));
    ENGINE_CALL(cuMemsetD8, address_, 0, count * sizeof(T));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    assign(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { ENGINE_CALL(cuMemFree, address_); }

  T* get() const { return reinterpret_cast<T*>(address_); }
  void assign(const std::vector<T>& values) {
    ENGINE_CALL(cuMemcpyHtoD, address_, values.data(), values.size() * sizeof(T));
  }
  /// Replaces the values from `first` on.
  void assign_from(std::size_t first, std::span<const T> values) {
    ENGINE_CALL(cuMemcpyHtoD, address_ + first * sizeof(T), values.data(), values.size_bytes());
  }
  /// Waits for everything that was enqueued before.
  std::vector<T> download() const {
    std::vector<T> values(count_);
    ENGINE_CALL(cuCtxSynchronize);
    ENGINE_CALL(cuMemcpyDtoH, values.data(), address_, count_ * sizeof(T));
    return values;
  }

 private:
  CUdeviceptr address_ = 0;
  std::size_t count_ = 0;
};

/// A stream that is ordered after the copies above, which go to the legacy default stream.
class Stream {
 public:
  Stream() { ENGINE_CALL(cuStreamCreate, &handle_, CU_STREAM_DEFAULT); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { ENGINE_CALL(cuStreamDestroy, handle_); }
  CUstream get() const { return handle_; }

 private:
  CUstream handle_ = nullptr;
};

/// A captured graph, ready to be replayed.
class Graph {
 public:
  /// Captures what `work` enqueues on `stream`; `work` returns a Status, which is passed on.
  template <class Work>
  static kiln::Result<Graph> capture(const Stream& stream, Work&& work) {
    ENGINE_CALL(cuStreamBeginCapture, stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    const kiln::Status status = work();
    CUgraph graph = nullptr;
    CUgraphExec instance = nullptr;
    // The capture ends in any case; what went wrong inside of it is the better message.
    const auto ended = ENGINE_SYMBOL(cuStreamEndCapture)(stream.get(), &graph);
    if (!status) return status.error();
    must(ended, "cuStreamEndCapture");
    ENGINE_CALL(cuGraphInstantiateWithFlags, &instance, graph, 0);
    ENGINE_CALL(cuGraphDestroy, graph);
    return Graph(instance);
  }
  void replay(const Stream& stream) const {
    ENGINE_CALL(cuGraphLaunch, instance_.get(), stream.get());
  }

 private:
  struct Destroy {
    void operator()(CUgraphExec instance) const { ENGINE_CALL(cuGraphExecDestroy, instance); }
  };
  explicit Graph(CUgraphExec instance) : instance_(instance) {}
  std::unique_ptr<CUgraphExec_st, Destroy> instance_;
};

/// Compares every value exactly; a difference ends the program.
template <class T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& expected, const char* what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i]) continue;
    std::fprintf(stderr, "%s: value %zu is %s, not %s\n", what, i, std::to_string(got[i]).c_str(),
                 std::to_string(expected[i]).c_str());
    std::exit(1);
  }
  std::printf("%s: all %zu values are right\n", what, expected.size());
}

/// The exit code of an example that ended with `status`, whose error is printed with its log.
inline int exit_code(const kiln::Status& status) {
  if (status) return 0;
  std::fprintf(stderr, "%s\n%s", status.error().message().c_str(),
               std::string(status.error().detail()).c_str());
  return 1;
}

}  // namespace engine
