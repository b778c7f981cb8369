// KILN_SHARED: a function that host and device compile from the same text. A macro, because NVRTC
// takes an unmarked function for a host function and a host compiler knows no __device__.
#pragma once

#ifdef __CUDACC_RTC__
#define KILN_SHARED __device__ __forceinline__
#else
#define KILN_SHARED inline
#endif
