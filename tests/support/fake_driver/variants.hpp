// Variants of driver functions that cuda.h does not declare under their own name.
#pragma once

#include <cuda.h>

extern "C" {
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int affinities,
                        unsigned flags, CUdevice device);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* dependency_count);
CUresult fake_driver_event_elapsed_time_v1(float* milliseconds, CUevent start, CUevent end);
}
