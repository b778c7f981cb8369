// output[r] = output_scale * sum_k p[r, k] key[k][0..511] / sum_k p[r, k], where
// p[r, k] = exp2(score_scale * query[r] . key[k]) over the keys k that row r sees, the causal mask
// being bottom-right; or a split's part of it. With wgmma, for sm_90a.
#include "kernel_src/device/e4m3_products_wgmma.cuh"
#include "kernel_src/kimi_k3_mla/attend.cuh"

extern "C" __global__ void __launch_bounds__(kiln::kernels::kimi_k3_mla::attend::kBoundThreads, 1)
    entry(const __grid_constant__ kiln::TensorMap latent,
          const __grid_constant__ kiln::TensorMap rope,
          const __grid_constant__ kiln::kernels::kimi_k3_mla::Args args) {
  kiln::kernels::kimi_k3_mla::attend::attend<kiln::device::E4m3Wgmma>(latent, rope, args);
}
