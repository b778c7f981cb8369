// output[t, h] = mxfp8(unrope(sum_s p[s] kv[s] / (sum_s p[s] + exp(sink[h])))), where
// p[s] = exp(rope(query[t, h]) . kv[s] / sqrt(512)) over the slots s that token t lists.
// With wgmma, for sm_90a.
#include "kernel_src/device/tile_products_wgmma.cuh"
#include "kernel_src/dsv41_decode/mega.cuh"

extern "C" __global__ void __launch_bounds__(kiln::kernels::dsv41_decode::mega::kBlockThreads, 1)
    entry(const __grid_constant__ kiln::kernels::dsv41_decode::Args args) {
  kiln::kernels::dsv41_decode::mega::decode<kiln::device::WgmmaProducts>(args);
}
