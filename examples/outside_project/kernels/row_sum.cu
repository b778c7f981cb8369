// sums[row] = the sum of the row; one warp for each row.
#include "jit/key.cuh"
#include "kernels/warp_sum.cuh"

extern "C" __global__ void entry(const int* rows, int* sums) {
  const int* row = rows + blockIdx.x * key::columns;
  int sum = 0;
  for (int column = threadIdx.x; column < key::columns; column += 32) sum += row[column];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
