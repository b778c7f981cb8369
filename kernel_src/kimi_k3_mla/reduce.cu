// output[r] = output_scale * sum_s w[s] partial[r, s] / sum_s w[s], where
// w[s] = sum[r, s] * 2^(maximum[r, s] - the largest maximum), over a row's splits s.
#include "kernel_src/kimi_k3_mla/reduce.cuh"

extern "C" __global__ void __launch_bounds__(kiln::kernels::kimi_k3_mla::reduce::kBlockThreads,
                                             kiln::kernels::kimi_k3_mla::reduce::kLeastBlocks)
    entry(const __grid_constant__ kiln::kernels::kimi_k3_mla::Args args) {
  kiln::kernels::kimi_k3_mla::reduce::reduce(args);
}
