// Programmatic dependent launch. One function, one instruction.
#pragma once

namespace kiln::device {

/// griddepcontrol.wait, sm_90+: blocks until the kernels before have ended and their writes are
/// visible; at once when nothing was launched ahead. Everything that they may write, or may still
/// read, is touched only after it.
__device__ __forceinline__ void wait_for_previous_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// griddepcontrol.launch_dependents, sm_90+: the next kernel may be started once all blocks have
/// said this or ended. Orders no memory: the next kernel still waits for this one's end.
__device__ __forceinline__ void allow_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace kiln::device
