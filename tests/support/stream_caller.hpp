// A caller of the library in two builds of one source: with cuda.h as it is, where the driver's
// functions take a null stream for the legacy default stream, and with
// CUDA_API_PER_THREAD_DEFAULT_STREAM, where they take it for the thread's own. Trial T29.
//
// Threads: any. Everything but launch() and capture() needs a driver that has the functions of
// both.
#pragma once

#include <cuda.h>

#include "kiln/launch.hpp"

namespace kiln::test {

struct StreamCaller {
  const char* name;
  bool null_is_per_thread;  ///< in its own calls of the driver

  // Through the library.
  Status (*launch)(LaunchDescriptor& launch, CUstream stream);
  Result<CapturedLaunch> (*capture)(LaunchDescriptor& launch, CUstream stream);

  // Its own calls of the driver.
  CUresult (*launch_kernel)(CUfunction function, void** arguments, CUstream stream);  // one thread
  CUresult (*record)(CUevent event, CUstream stream);
  CUresult (*begin_capture)(CUstream stream);
  CUresult (*is_capturing)(CUstream stream, CUstreamCaptureStatus* status);
  CUresult (*end_capture)(CUstream stream, CUgraph* graph);
};

extern const StreamCaller plain_caller;
extern const StreamCaller per_thread_caller;

}  // namespace kiln::test
