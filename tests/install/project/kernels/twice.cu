// x[i] *= 2, for the first `count` values. The text has what an embedding must not change: ${NAME},
// @NAME@, [brackets; and semicolons], "quotes", back\slashes and )" alone.
#include "jit/key.cuh"
#include "outside/kernels/twice.hpp"
extern "C" __global__ void entry(float* x, int count) {
  const int i = static_cast<int>(blockIdx.x * key::block + threadIdx.x);
  if (i < count) x[i] = twice(x[i]);
}
