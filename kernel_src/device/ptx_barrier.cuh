// Barriers between some of a block's warps. One function, one instruction.
#pragma once

namespace kiln::device {

/// barrier.sync.aligned, all: until `threads` threads, whole warps, have called it for `barrier`, 1
/// to 15 (0 is __syncthreads()); what they wrote before is visible after.
__device__ __forceinline__ void barrier_sync(unsigned barrier, unsigned threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// barrier.arrive.aligned, all: counts this warp among the `threads` without waiting for them.
__device__ __forceinline__ void barrier_arrive_of_warp(unsigned barrier, unsigned threads) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// barrier.red.or.pred, all: the same, and whether any of the threads says so.
__device__ __forceinline__ bool barrier_any(unsigned barrier, unsigned threads, bool says) {
  unsigned any;
  asm volatile(
      "{\n\t"
      ".reg .pred says, any;\n\t"
      "setp.ne.u32 says, %3, 0;\n\t"
      "barrier.cta.red.or.pred.aligned any, %1, %2, says;\n\t"
      "selp.u32 %0, 1, 0, any;\n\t"
      "}"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<unsigned>(says))
      : "memory");
  return any != 0;
}

}  // namespace kiln::device
