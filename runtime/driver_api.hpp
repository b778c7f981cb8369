// The CUDA driver as a table of functions, opened at run time: nothing links libcuda, so one binary
// runs on machines with and without it, and tests put their own functions in.
//
// Threads: load() from any thread; the table never changes afterwards.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <memory>
#include <string>

#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"

namespace kiln {

// Name and the CUDA version in which the signature that this code was written for appeared:
// cuGetProcAddress hands out exactly that one, whatever newer ones the driver has.
#define KILN_DRIVER_FUNCTIONS(KILN_FUNCTION)                       \
  KILN_FUNCTION(cuInit, 2000)                                      \
  KILN_FUNCTION(cuDriverGetVersion, 2020)                          \
  KILN_FUNCTION(cuGetErrorName, 6000)                              \
  KILN_FUNCTION(cuDeviceGet, 2000)                                 \
  KILN_FUNCTION(cuDeviceGetCount, 2000)                            \
  KILN_FUNCTION(cuDeviceGetAttribute, 2000)                        \
  KILN_FUNCTION(cuCtxGetCurrent, 4000)                             \
  KILN_FUNCTION(cuCtxGetDevice, 2000)                              \
  KILN_FUNCTION(cuCtxPushCurrent, 4000)                            \
  KILN_FUNCTION(cuCtxPopCurrent, 4000)                             \
  KILN_FUNCTION(cuDevicePrimaryCtxGetState, 7000)                  \
  KILN_FUNCTION(cuDevicePrimaryCtxRetain, 7000)                    \
  KILN_FUNCTION(cuDevicePrimaryCtxRelease, 11000)                  \
  KILN_FUNCTION(cuLibraryLoadData, 12000)                          \
  KILN_FUNCTION(cuLibraryUnload, 12000)                            \
  KILN_FUNCTION(cuLibraryGetKernel, 12000)                         \
  KILN_FUNCTION(cuKernelGetFunction, 12000)                        \
  KILN_FUNCTION(cuKernelGetAttribute, 12000)                       \
  KILN_FUNCTION(cuKernelSetAttribute, 12000)                       \
  KILN_FUNCTION(cuLaunchKernelEx, 11060)                           \
  KILN_FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  KILN_FUNCTION(cuOccupancyMaxActiveClusters, 11070)               \
  KILN_FUNCTION(cuOccupancyMaxPotentialClusterSize, 11070)         \
  KILN_FUNCTION(cuStreamIsCapturing, 10000)                        \
  KILN_FUNCTION(cuThreadExchangeStreamCaptureMode, 10010)          \
  KILN_FUNCTION(cuGraphExecKernelNodeSetParams, 12000)             \
  KILN_FUNCTION(cuGraphNodeSetEnabled, 11060)                      \
  KILN_FUNCTION(cuGraphRetainUserObject, 11030)                    \
  KILN_FUNCTION(cuUserObjectCreate, 11030)                         \
  KILN_FUNCTION(cuUserObjectRelease, 11030)                        \
  KILN_FUNCTION(cuTensorMapEncodeTiled, 12000)                     \
  KILN_FUNCTION(cuTensorMapReplaceAddress, 12000)                  \
  KILN_FUNCTION(cuMemAlloc, 3020)                                  \
  KILN_FUNCTION(cuMemFree, 3020)                                   \
  KILN_FUNCTION(cuStreamBatchMemOp, 11070)

// By the type of their version and named after it, because headers differ in which one the plain
// name means. Null where the driver is older.
#define KILN_VERSIONED_DRIVER_FUNCTIONS(KILN_FUNCTION) \
  KILN_FUNCTION(StreamGetCaptureInfo, 11030)           \
  KILN_FUNCTION(StreamGetCaptureInfo, 12030)           \
  KILN_FUNCTION(KernelGetParamInfo, 12040)

// Exported for kiln::bench, which is a library of its own.
struct KILN_API DriverApi {
#define KILN_FUNCTION(name, version) decltype(&::name) name = nullptr;
  KILN_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION
#define KILN_FUNCTION(name, version) PFN_cu##name##_v##version cu##name##_v##version = nullptr;
  KILN_VERSIONED_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION
  int loaded_version = 0;

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
  /// Whether a stream of the current context that is ordered with the legacy default stream is
  /// being captured. The driver tells of no other stream without being given it.
  bool capture_is_visible() const noexcept {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return cuStreamIsCapturing(CU_STREAM_LEGACY, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  /// The CUDA version that the driver supports, such as 13000; 0 when it will not say.
  int version() const noexcept {
    return loaded_version;
  }
};

/// Lets this thread make calls that the driver forbids while any stream is being captured, such as
/// unloading a library; otherwise such a call fails and spoils a capture that is none of its
/// business. Touches no stream.
class OutsideCapture {
 public:
  explicit OutsideCapture(const DriverApi& driver) noexcept : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;
  ~OutsideCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  const DriverApi& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// The CUDA version of the installed driver without initialising it, such as 13000; 0: no driver.
int installed_driver_version() noexcept;

}  // namespace kiln
