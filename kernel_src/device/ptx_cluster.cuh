// Blocks of a cluster: their barrier and each other's shared memory. One function, one instruction.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// barrier.cluster.arrive.relaxed, sm_90+: orders nothing but the barrier itself and barriers in
/// shared memory that fence_barrier_init() was called for. All threads of all blocks arrive.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// barrier.cluster.arrive.release, sm_90+: the same, after all that this thread has written in the
/// cluster and arrived at.
__device__ __forceinline__ void cluster_arrive_release() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/// barrier.cluster.wait.acquire, sm_90+: until all threads of the cluster have arrived.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// %cluster_ctarank and %cluster_nctarank, sm_90+: the block's number in its cluster, and how many
/// there are. Read anew in each place, so that they take no registers in between.
__device__ __forceinline__ kernels::u32 cluster_rank() {
  kernels::u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ kernels::u32 cluster_blocks() {
  kernels::u32 blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

/// mapa.shared::cluster.u32, sm_90+: where the block `rank` has what this block has at the address
/// `own` of its shared memory.
__device__ __forceinline__ kernels::u32 address_in_block(kernels::u32 own, kernels::u32 rank) {
  kernels::u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
  return address;
}

/// st.async.v2.b32, sm_90+: 8 bytes to an address that address_in_block() gave, reported to
/// `barrier` of the same block.
__device__ __forceinline__ void send_8(kernels::u32 to, float a, float b, kernels::u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(to),
      "f"(a), "f"(b), "r"(barrier)
      : "memory");
}

/// st.async.v4.b32, sm_90+: 16 bytes likewise.
__device__ __forceinline__ void send_16(kernels::u32 to, float a, float b, float c, float d,
                                        kernels::u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}

}  // namespace kiln::device
