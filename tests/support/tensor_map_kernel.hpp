// A kernel that copies one box by TMA, as it lies in shared memory, with its map by value and by
// pointer.
#pragma once

#include <string_view>

#include "kernel_src/kernels.hpp"
#include "kiln/runtime.hpp"
#include "support/kernels.hpp"

namespace kiln::test {

inline constexpr std::string_view kTensorMapSource = R"(
#include "jit/key.cuh"
#include "jit/tensor_map.cuh"
#include "kernel_src/device/ptx_mbarrier.cuh"
#include "kernel_src/device/ptx_tensor_map.cuh"

using namespace kiln::device;

__device__ __forceinline__ void copy_box(const kiln::TensorMap* map, int x, int y, uint4* out) {
  __shared__ alignas(1024) uint4 tile[key::box_bytes / 16];
  __shared__ alignas(8) unsigned long long barrier;
  const auto where = shared_address(&barrier);
  if (threadIdx.x == 0) {
    barrier_init(where, 1);
    fence_barrier_init();
    barrier_arrive_expect(where, key::box_bytes);
    load_box_2d(shared_address(tile), map, x, y, where);
  }
  __syncthreads();
  while (!barrier_try_wait(where, 0)) {}
  for (unsigned i = threadIdx.x; i < key::box_bytes / 16; i += blockDim.x) out[i] = tile[i];
}

extern "C" __global__ void by_value(const __grid_constant__ kiln::TensorMap map, int x, int y,
                                    uint4* out) {
  if (threadIdx.x == 0) prefetch_map(&map);
  copy_box(&map, x, y, out);
}

extern "C" __global__ void by_pointer(const kiln::TensorMap* map, int x, int y, uint4* out) {
  if (threadIdx.x == 0) acquire_map(map);
  copy_box(map, x, y, out);
}
)";

/// Of one of the two entries; `box_bytes` of the box, a multiple of 16.
inline KernelSpec tensor_map_spec(std::string entry, unsigned box_bytes) {
  return {.name = "tensor_map",
          .source = "tensor_map.cu",
          .entry = std::move(entry),
          .key = {{"box_bytes", "u32", std::to_string(box_bytes)}},
          .builtins = Builtins::minimal,
          .oldest_sm = 90};
}

inline Status add_tensor_map_source(Runtime& runtime) {
  if (auto status = kernels::add_sources(runtime); !status) return status;
  return runtime.add_source("tensor_map.cu", kTensorMapSource);
}

}  // namespace kiln::test
