// Kernels of the fake driver and what launches share: handles, limits, checks, occupancy, capture.
//
// Threads: under State's mutex.
#pragma once

#include <cuda.h>

#include <memory>

#include "tests/support/fake_driver/state.hpp"

namespace fake_driver {

/// What a handle stands for: launches take a kernel's handle in place of a function's.
struct Resolved {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;  ///< null when the handle was the kernel's
};
/// Errors  CUDA_ERROR_INVALID_HANDLE
CUresult resolve(CUfunction handle, Resolved& resolved);

/// The value that is in force: set on the function, or on the kernel for the device, or the code's.
int attribute(const Resolved& resolved, CUdevice device, CUfunction_attribute which);

/// Brings the kernel's code into a context; true when it was not there yet.
bool load_into(CUkernel kernel, CUcontext context);

/// The function of a kernel in a context.
CUfunction function_in(CUkernel kernel, CUcontext context);

/// Blocks of this size that fit on a multiprocessor.
int blocks_per_multiprocessor(const Resolved& resolved, CUdevice device, unsigned threads,
                              std::size_t dynamic_shared_bytes);

/// The launch that a configuration describes, checked as the driver checks it.
CUresult make_launch(const CUlaunchConfig& config, CUfunction handle, void** parameters,
                     void** extra, CUcontext context, KernelLaunch& launch);
/// Checks an assembled launch.
CUresult check(const KernelLaunch& launch);
/// Reads the arguments into `launch`, by pointers or from one buffer.
CUresult read_parameters(void** parameters, void** extra, KernelLaunch& launch);
/// Adds to the record, unless recording is off.
void record(const KernelLaunch& launch, Origin origin, CUstream stream);

/// The stream behind a handle; null is the legacy default stream.
/// Errors  CUDA_ERROR_INVALID_HANDLE, also for a stream of another context
CUresult resolve_stream(CUstream handle, CUcontext context, CUstream& stream);
/// Null while no capture is in progress on `stream`.
std::shared_ptr<Capture> capture_of(CUstream stream);
/// What must hold before work goes to `stream`: its capture is whole, and the legacy stream is not
/// used beside a capture that it would wait for, which breaks that capture.
CUresult may_enqueue(CUstream stream, CUcontext context);
/// What must hold before a call that may synchronise or allocate; breaks the captures otherwise.
CUresult may_block();
/// Appends a node to the capture on `stream`.
CUgraphNode append(Capture& capture, CUstream stream, CUgraphNodeType type);

}  // namespace fake_driver
