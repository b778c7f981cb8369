// Exchange between the threads of a warp. One function, one instruction.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// %laneid, all: the thread's number in its warp. Read anew in each place, so that what is worked
/// out from it takes no registers in between.
__device__ __forceinline__ kernels::u32 lane_anew() {
  kernels::u32 lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

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

/// shfl.sync.idx.b32, sm_70+: the first lane's word, so that the compiler knows it to be the same
/// in all. All 32 lanes take part.
__device__ __forceinline__ kernels::u32 from_first_lane(kernels::u32 word) {
  kernels::u32 first;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;" : "=r"(first) : "r"(word));
  return first;
}

/// shfl.sync.idx.b32, sm_70+: each lane's own word. ptxas puts arithmetic as late as it may, even
/// behind a wait; what this gave it does not. All 32 lanes take part.
__device__ __forceinline__ kernels::u32 worked_out(kernels::u32 word, kernels::u32 lane) {
  kernels::u32 same;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(same) : "r"(word), "r"(lane));
  return same;
}
template <class T>
__device__ __forceinline__ T* worked_out(T* pointer, kernels::u32 lane) {
  const auto bits = reinterpret_cast<kernels::u64>(pointer);
  const kernels::u64 low = worked_out(static_cast<kernels::u32>(bits), lane);
  const kernels::u64 high = worked_out(static_cast<kernels::u32>(bits >> 32), lane);
  return reinterpret_cast<T*>(high << 32 | low);
}

/// redux.sync.max.s32, sm_80+: the largest of all 32 lanes' integers; all take part.
__device__ __forceinline__ int largest_of_warp(int word) {
  int largest;
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(word));
  return largest;
}

}  // namespace kiln::device
