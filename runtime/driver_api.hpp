// The CUDA driver as a table of functions, opened at run time: nothing links libcuda, so one binary
// runs on machines with and without it, and tests put their own functions in.
//
// Threads: load() from any thread; the table never changes afterwards.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "kiln/error.hpp"

namespace kiln {

// Name and the CUDA version in which the signature that this code was written for appeared:
// cuGetProcAddress hands out exactly that one, whatever newer ones the driver has.
#define KILN_DRIVER_FUNCTIONS(KILN_FUNCTION)      \
  KILN_FUNCTION(cuInit, 2000)                     \
  KILN_FUNCTION(cuDriverGetVersion, 2020)         \
  KILN_FUNCTION(cuGetErrorName, 6000)             \
  KILN_FUNCTION(cuDeviceGet, 2000)                \
  KILN_FUNCTION(cuDeviceGetCount, 2000)           \
  KILN_FUNCTION(cuDeviceGetAttribute, 2000)       \
  KILN_FUNCTION(cuCtxGetCurrent, 4000)            \
  KILN_FUNCTION(cuCtxGetDevice, 2000)             \
  KILN_FUNCTION(cuLibraryLoadData, 12000)         \
  KILN_FUNCTION(cuLibraryUnload, 12000)           \
  KILN_FUNCTION(cuLibraryGetKernel, 12000)        \
  KILN_FUNCTION(cuKernelGetFunction, 12000)       \
  KILN_FUNCTION(cuKernelGetAttribute, 12000)      \
  KILN_FUNCTION(cuKernelSetAttribute, 12000)      \
  KILN_FUNCTION(cuLaunchKernelEx, 11060)          \
  KILN_FUNCTION(cuTensorMapEncodeTiled, 12000)    \
  KILN_FUNCTION(cuTensorMapReplaceAddress, 12000) \
  KILN_FUNCTION(cuMemAlloc, 3020)                 \
  KILN_FUNCTION(cuMemFree, 3020)                  \
  KILN_FUNCTION(cuStreamBatchMemOp, 11070)

struct DriverApi {
#define KILN_FUNCTION(name, version) decltype(&::name) name = nullptr;
  KILN_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION

  /// Opens the driver and calls cuInit; makes no context.
  /// Errors  no_device when there is no driver library (or only the toolkit's stub of it), when it
  ///         is too old, or when it sees no device; the message says which, and the cure.
  static Result<std::shared_ptr<const DriverApi>> load();

  /// The driver's name of `result`, a static string.
  const char* name_of(CUresult result) const noexcept;
  /// An error for a failed call; allocates nothing.
  Error failed(const char* call, CUresult result) const noexcept {
    return Error::from_driver(call, static_cast<int>(result), name_of(result));
  }
  /// The device of this thread's context; -1 when none is current.
  Result<int> current_device() const noexcept {
    CUcontext context = nullptr;
    if (const auto result = cuCtxGetCurrent(&context); result != CUDA_SUCCESS)
      return failed("cuCtxGetCurrent", result);
    if (context == nullptr) return -1;
    CUdevice device = -1;
    if (const auto result = cuCtxGetDevice(&device); result != CUDA_SUCCESS)
      return failed("cuCtxGetDevice", result);
    // The driver's device handles are its ordinals.
    return device;
  }
  /// The CUDA version that the driver supports, such as 13000; 0 when it will not say.
  int version() const noexcept;
};

/// The CUDA version of the installed driver without initialising it, such as 13000; 0: no driver.
int installed_driver_version() noexcept;

}  // namespace kiln
