// The driver functions that the harness needs beside the runtime's: contexts, memory, streams,
// graphs and events.
//
// Threads: load() from any thread; the table never changes afterwards.
#pragma once

#include <cuda.h>

#include <memory>

#include "kiln/error.hpp"
#include "runtime/driver_api.hpp"

namespace kiln::bench {

// Name and the CUDA version of the signature, as in runtime/driver_api.hpp.
#if CUDA_VERSION >= 12080
#define KILN_ELAPSED_TIME_VERSION 12080
#else
#define KILN_ELAPSED_TIME_VERSION 2000
#endif
#define KILN_BENCH_DRIVER_FUNCTIONS(KILN_FUNCTION)             \
  KILN_FUNCTION(cuDevicePrimaryCtxRetain, 7000)                \
  KILN_FUNCTION(cuCtxSetCurrent, 4000)                         \
  KILN_FUNCTION(cuDeviceGetName, 2000)                         \
  KILN_FUNCTION(cuDeviceGetPCIBusId, 4010)                     \
  KILN_FUNCTION(cuMemAlloc, 3020)                              \
  KILN_FUNCTION(cuMemFree, 3020)                               \
  KILN_FUNCTION(cuMemcpyHtoD, 3020)                            \
  KILN_FUNCTION(cuMemcpyDtoH, 3020)                            \
  KILN_FUNCTION(cuMemsetD8, 3020)                              \
  KILN_FUNCTION(cuMemsetD8Async, 3020)                         \
  KILN_FUNCTION(cuStreamCreate, 2000)                          \
  KILN_FUNCTION(cuStreamDestroy, 4000)                         \
  KILN_FUNCTION(cuStreamSynchronize, 2000)                     \
  KILN_FUNCTION(cuStreamBeginCapture, 10010)                   \
  KILN_FUNCTION(cuStreamEndCapture, 10000)                     \
  KILN_FUNCTION(cuGraphInstantiateWithFlags, 11040)            \
  KILN_FUNCTION(cuGraphDestroy, 10000)                         \
  KILN_FUNCTION(cuGraphExecDestroy, 10000)                     \
  KILN_FUNCTION(cuGraphLaunch, 10000)                          \
  KILN_FUNCTION(cuEventCreate, 2000)                           \
  KILN_FUNCTION(cuEventRecord, 2000)                           \
  KILN_FUNCTION(cuEventRecordWithFlags, 11010)                 \
  KILN_FUNCTION(cuEventSynchronize, 2000)                      \
  KILN_FUNCTION(cuEventElapsedTime, KILN_ELAPSED_TIME_VERSION) \
  KILN_FUNCTION(cuEventDestroy, 4000)

struct BenchDriver {
  std::shared_ptr<const DriverApi> api{};
#define KILN_FUNCTION(name, version) decltype(&::name) name = nullptr;
  KILN_BENCH_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION

  /// Errors  as DriverApi::load()
  static Result<std::shared_ptr<const BenchDriver>> load();

  /// An error for a failed call, or none.
  Status check(const char* call, CUresult result) const {
    return result == CUDA_SUCCESS ? Status{} : Status{api->failed(call, result)};
  }
};

/// Makes the call; returns its error from this function.
#define KILN_BENCH_CALL(driver, name, ...)                                                  \
  if (::kiln::Status status = (driver)->check(#name, (driver)->name(__VA_ARGS__)); !status) \
  return status.error()

}  // namespace kiln::bench
