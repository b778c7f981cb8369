// What an inference engine has of its own: device memory, a stream, graphs. Here straight on the
// driver, opened at run time, so that the example builds on machines without a GPU.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace engine {

#define ENGINE_STRING_INNER(text) #text
#define ENGINE_STRING(text) ENGINE_STRING_INNER(text)
#define ENGINE_CALL(name, ...) \
  ::engine::must(::engine::symbol<decltype(&::name)>(ENGINE_STRING(name))(__VA_ARGS__), #name)

inline void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s failed with CUresult %d\n", what, static_cast<int>(result));
  std::exit(1);
}

template <class Function>
Function symbol(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(::dlsym(library, name));
}

/// Makes device 0's primary context current.
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
  ~DeviceArray() { symbol<decltype(&::cuMemFree)>(ENGINE_STRING(cuMemFree))(address_); }

  T* get() const { return reinterpret_cast<T*>(address_); }
  void assign(const std::vector<T>& values) {
    ENGINE_CALL(cuMemcpyHtoD, address_, values.data(), values.size() * sizeof(T));
  }
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

}  // namespace engine
