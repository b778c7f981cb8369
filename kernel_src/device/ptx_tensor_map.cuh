// Copies by tensor map. One function, one instruction. A map lies in a __grid_constant__ parameter
// or in global memory; one thread issues a copy.
#pragma once

#include "jit/tensor_map.cuh"
#include "kernel_src/shared/types.hpp"

namespace kiln::device {

/// prefetch.tensormap, sm_90+: fetches the map ahead of its first use.
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// fence.proxy.tensormap::generic.acquire.sys, sm_90+: this thread's copies after it see the map as
/// it was written before the kernel, by host or device. For maps in global memory, by the thread
/// that issues the copies, before its first use of the map.
__device__ __forceinline__ void acquire_map(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

/// cp.async.bulk.tensor.2d, global to shared, sm_90+: the box at element (x, y) to `tile`, which is
/// aligned to 128 bytes (a 128-byte swizzle repeats every 1024); its bytes, those out of bounds
/// included, are reported to `barrier`. Both are addresses of shared memory.
__device__ __forceinline__ void load_box_2d(kernels::u32 tile, const TensorMap* map, int x, int y,
                                            kernels::u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(tile),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

/// cp.async.bulk.tensor.3d with a cache hint, global to shared, sm_90+: likewise the box at element
/// (x, y, z); `policy` is of ptx_cache_policy.cuh.
__device__ __forceinline__ void load_box_3d(kernels::u32 tile, const TensorMap* map, int x, int y,
                                            int z, kernels::u32 barrier, kernels::u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(tile),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy)
      : "memory");
}

/// cp.async.bulk.tensor.3d with multicast and a cache hint, sm_90+: likewise, to the same place in
/// each block of the cluster whose bit is set in `blocks`, and reported to its barrier at the same
/// place.
__device__ __forceinline__ void load_box_3d_to(kernels::u16 blocks, kernels::u32 tile,
                                               const TensorMap* map, int x, int y, int z,
                                               kernels::u32 barrier, kernels::u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(tile),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks), "l"(policy)
      : "memory");
}

}  // namespace kiln::device
