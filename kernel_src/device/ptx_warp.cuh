// Exchange between the threads of a warp. One function, one instruction.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// shfl.sync.bfly.b32, sm_70+: the word of the lane whose number differs in the bits `lane_mask`.
/// All 32 lanes take part.
__device__ __forceinline__ kernels::u32 from_lane_across(kernels::u32 word,
                                                         kernels::u32 lane_mask) {
  kernels::u32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
               : "=r"(other)
               : "r"(word), "r"(lane_mask));
  return other;
}

}  // namespace kiln::device
