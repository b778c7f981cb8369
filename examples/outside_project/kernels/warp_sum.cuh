// The sum of `value` over the threads of a warp, for each of them.
#pragma once

__device__ inline int warp_sum(int value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lane);
  return value;
}
