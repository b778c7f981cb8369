// How many registers the threads of a warpgroup have. One function, one instruction; all warps of
// the warpgroup call it. Only targets with a suffix, such as sm_90a, know it: others go on with
// what the launch bounds gave them.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__) || \
    defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#define KILN_HAS_SETMAXNREG 1
#else
#define KILN_HAS_SETMAXNREG 0
#endif

namespace kiln::device {

/// setmaxnreg.inc, sm_90a+: waits until `registers`, a multiple of 8, are free for each thread.
template <int registers>
__device__ __forceinline__ void more_registers() {
#if KILN_HAS_SETMAXNREG
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}

/// setmaxnreg.dec, sm_90a+: gives up all but `registers`, a multiple of 8.
template <int registers>
__device__ __forceinline__ void fewer_registers() {
#if KILN_HAS_SETMAXNREG
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}

}  // namespace kiln::device
