// Barriers between some of a block's warps. One function, one instruction.
#pragma once

namespace kiln::device {

/// barrier.sync.aligned, all: until `threads` threads, whole warps, have called it for `barrier`, 1
/// to 15 (0 is __syncthreads()); what they wrote before is visible after.
__device__ __forceinline__ void barrier_sync(unsigned barrier, unsigned threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace kiln::device
