// What L2 makes of lines, as copies with a cache hint want it, and prefetches to L2. One function,
// one instruction.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// createpolicy.fractional.L2::evict_unchanged, sm_80+: as without a hint, as far as time tells. A
/// hint of evict_normal is not: with it kimi_k3_mla takes 23 % longer for long requests.
__device__ __forceinline__ kernels::u64 as_without_policy() {
  kernels::u64 policy;
  asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// createpolicy.fractional.L2::evict_first, sm_80+: the first to make room.
__device__ __forceinline__ kernels::u64 drop_first() {
  kernels::u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// prefetch.global.L2, all: asks for the line at `address`.
__device__ __forceinline__ void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

}  // namespace kiln::device
