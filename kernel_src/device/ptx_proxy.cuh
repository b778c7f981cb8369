// Ordering between ordinary accesses and those of the copy engine and the matrix units. One
// function, one instruction.
#pragma once

namespace kiln::device {

/// fence.proxy.async.shared::cta, sm_90+: what this thread wrote to shared memory comes before what
/// copy engine and matrix units do after the next barrier.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace kiln::device
