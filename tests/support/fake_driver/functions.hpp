// The driver functions that the fake driver has: name, and the CUDA version in which the variant
// that cuda.h declares under this name appeared. cudaTypedefs.h has a type for each such pair,
// which entry.cpp checks at compile time, so that a wrong version or signature fails the build.
//
// Threads: constants.
#pragma once

#include <cuda.h>

#include <cstddef>

// clang-format off
#define FAKE_DRIVER_FUNCTIONS(FUNCTION) \
  FUNCTION(cuInit, 2000) \
  FUNCTION(cuDriverGetVersion, 2020) \
  FUNCTION(cuGetErrorName, 6000) \
  FUNCTION(cuGetErrorString, 6000) \
  FUNCTION(cuDeviceGet, 2000) \
  FUNCTION(cuDeviceGetCount, 2000) \
  FUNCTION(cuDeviceGetAttribute, 2000) \
  FUNCTION(cuDeviceGetName, 2000) \
  FUNCTION(cuDeviceGetPCIBusId, 4010) \
  FUNCTION(cuDeviceGetUuid, 11040) \
  FUNCTION(cuDeviceTotalMem, 3020) \
  FUNCTION(cuDevicePrimaryCtxRetain, 7000) \
  FUNCTION(cuDevicePrimaryCtxRelease, 11000) \
  FUNCTION(cuDevicePrimaryCtxGetState, 7000) \
  FUNCTION(cuCtxCreate, 12050) \
  FUNCTION(cuCtxDestroy, 4000) \
  FUNCTION(cuCtxGetCurrent, 4000) \
  FUNCTION(cuCtxSetCurrent, 4000) \
  FUNCTION(cuCtxPushCurrent, 4000) \
  FUNCTION(cuCtxPopCurrent, 4000) \
  FUNCTION(cuCtxGetDevice, 2000) \
  FUNCTION(cuCtxGetId, 12000) \
  FUNCTION(cuCtxSynchronize, 2000) \
  FUNCTION(cuLibraryLoadData, 12000) \
  FUNCTION(cuLibraryUnload, 12000) \
  FUNCTION(cuLibraryGetKernel, 12000) \
  FUNCTION(cuLibraryGetKernelCount, 12040) \
  FUNCTION(cuLibraryEnumerateKernels, 12040) \
  FUNCTION(cuKernelGetFunction, 12000) \
  FUNCTION(cuKernelGetAttribute, 12000) \
  FUNCTION(cuKernelSetAttribute, 12000) \
  FUNCTION(cuKernelGetParamInfo, 12040) \
  FUNCTION(cuKernelGetName, 12030) \
  FUNCTION(cuFuncGetAttribute, 2020) \
  FUNCTION(cuFuncSetAttribute, 9000) \
  FUNCTION(cuFuncGetName, 12030) \
  FUNCTION(cuFuncGetParamInfo, 12040) \
  FUNCTION(cuModuleGetLoadingMode, 11070) \
  FUNCTION(cuLaunchKernelEx, 11060) \
  FUNCTION(cuLaunchKernel, 4000) \
  FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000) \
  FUNCTION(cuOccupancyMaxActiveClusters, 11070) \
  FUNCTION(cuOccupancyMaxPotentialClusterSize, 11070) \
  FUNCTION(cuStreamCreate, 2000) \
  FUNCTION(cuStreamCreateWithPriority, 5050) \
  FUNCTION(cuStreamDestroy, 4000) \
  FUNCTION(cuStreamSynchronize, 2000) \
  FUNCTION(cuStreamQuery, 2000) \
  FUNCTION(cuStreamWaitEvent, 3020) \
  FUNCTION(cuStreamIsCapturing, 10000) \
  FUNCTION(cuStreamGetCaptureInfo, 12030) \
  FUNCTION(cuStreamBeginCapture, 10010) \
  FUNCTION(cuStreamEndCapture, 10000) \
  FUNCTION(cuThreadExchangeStreamCaptureMode, 10010) \
  FUNCTION(cuEventCreate, 2000) \
  FUNCTION(cuEventDestroy, 4000) \
  FUNCTION(cuEventRecord, 2000) \
  FUNCTION(cuEventRecordWithFlags, 11010) \
  FUNCTION(cuEventSynchronize, 2000) \
  FUNCTION(cuEventQuery, 2000) \
  FUNCTION(cuEventElapsedTime, 12080) \
  FUNCTION(cuGraphCreate, 10000) \
  FUNCTION(cuGraphClone, 10000) \
  FUNCTION(cuGraphDestroy, 10000) \
  FUNCTION(cuGraphGetNodes, 10000) \
  FUNCTION(cuGraphNodeGetType, 10000) \
  FUNCTION(cuGraphAddKernelNode, 12000) \
  FUNCTION(cuGraphKernelNodeGetParams, 12000) \
  FUNCTION(cuGraphKernelNodeSetParams, 12000) \
  FUNCTION(cuGraphKernelNodeGetAttribute, 11000) \
  FUNCTION(cuGraphKernelNodeSetAttribute, 11000) \
  FUNCTION(cuGraphInstantiateWithFlags, 11040) \
  FUNCTION(cuGraphExecKernelNodeSetParams, 12000) \
  FUNCTION(cuGraphNodeSetEnabled, 11060) \
  FUNCTION(cuGraphNodeGetEnabled, 11060) \
  FUNCTION(cuGraphLaunch, 10000) \
  FUNCTION(cuGraphExecDestroy, 10000) \
  FUNCTION(cuGraphRetainUserObject, 11030) \
  FUNCTION(cuUserObjectCreate, 11030) \
  FUNCTION(cuUserObjectRelease, 11030) \
  FUNCTION(cuTensorMapEncodeTiled, 12000) \
  FUNCTION(cuTensorMapReplaceAddress, 12000) \
  FUNCTION(cuMemAlloc, 3020) \
  FUNCTION(cuMemFree, 3020) \
  FUNCTION(cuMemGetInfo, 3020) \
  FUNCTION(cuMemHostAlloc, 2020) \
  FUNCTION(cuMemFreeHost, 2000) \
  FUNCTION(cuMemHostGetDevicePointer, 3020) \
  FUNCTION(cuMemcpyHtoD, 3020) \
  FUNCTION(cuMemcpyDtoH, 3020) \
  FUNCTION(cuMemcpyDtoD, 3020) \
  FUNCTION(cuMemcpyHtoDAsync, 3020) \
  FUNCTION(cuMemcpyDtoHAsync, 3020) \
  FUNCTION(cuMemcpyDtoDAsync, 3020) \
  FUNCTION(cuMemsetD8, 3020) \
  FUNCTION(cuMemsetD8Async, 3020) \
  FUNCTION(cuStreamBatchMemOp, 11070)
// clang-format on

namespace fake_driver {

// cuda.h renames some of the names by macro, here and wherever one of these is mentioned.
enum class Function : unsigned {
  cuGetProcAddress,
#define FAKE_DRIVER_FUNCTION(name, version) name,
  FAKE_DRIVER_FUNCTIONS(FAKE_DRIVER_FUNCTION)
#undef FAKE_DRIVER_FUNCTION
      count
};

inline constexpr std::size_t kFunctions = static_cast<std::size_t>(Function::count);

}  // namespace fake_driver
