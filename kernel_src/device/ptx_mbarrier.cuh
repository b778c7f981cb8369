// Barriers in shared memory, on which asynchronous copies report. One function, one instruction;
// addresses are those of shared memory.
#pragma once

#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// cvta.to.shared.u64, all: the address in shared memory of what `generic` points at there.
__device__ __forceinline__ kernels::u32 shared_address(const void* generic) {
  kernels::u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(generic));
  return static_cast<kernels::u32>(address);
}

/// mbarrier.init.b64, sm_80+: starts phase 0 of the 8 bytes at `barrier`, which ends after
/// `arrivals`. By one thread.
__device__ __forceinline__ void barrier_init(kernels::u32 barrier, kernels::u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// fence.mbarrier_init, sm_90+: makes this thread's inits visible to asynchronous copies and to the
/// cluster.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive.b64, sm_80+: one arrival; what this thread wrote is visible to who waits.
__device__ __forceinline__ void barrier_arrive(kernels::u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive.expect_tx.b64, sm_90+: one arrival, after which the phase also waits for `bytes`
/// of copies.
__device__ __forceinline__ void barrier_arrive_expect(kernels::u32 barrier, kernels::u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// mbarrier.arrive.release.cluster, sm_90+: one arrival at a barrier of another block, whose
/// address address_in_block() gave; what this thread knows to be done is done for who waits there.
__device__ __forceinline__ void barrier_arrive_in_block(kernels::u32 barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

/// mbarrier.arrive.b64 of the cluster, sm_90+: the same, but it releases at block scope only, which
/// is enough after reads and before copies; a release at cluster scope takes some 1400 clocks.
__device__ __forceinline__ void barrier_arrive_after_reads(kernels::u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.try_wait.parity.b64, sm_90+: whether the phase of this parity (0 for the first) has
/// ended, after waiting a while. In a loop; what the copies wrote is visible once it is true.
__device__ __forceinline__ bool barrier_try_wait(kernels::u32 barrier, kernels::u32 parity) {
  kernels::u32 done;
  asm volatile(
      "{\n\t"
      ".reg .pred ended;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, ended;\n\t"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// mbarrier.try_wait.parity.acquire.cluster, sm_90+: the same where other blocks arrive.
__device__ __forceinline__ bool barrier_try_wait_cluster(kernels::u32 barrier,
                                                         kernels::u32 parity) {
  kernels::u32 done;
  asm volatile(
      "{\n\t"
      ".reg .pred ended;\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, ended;\n\t"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

}  // namespace kiln::device
