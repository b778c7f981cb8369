#include "kernel_src/benches.hpp"

#include <array>

#include "kernel_src/dsv41_decode/bench.hpp"
#include "kernel_src/dsv41_kv_insert/bench.hpp"
#include "kernel_src/kimi_k3_mla/bench.hpp"

namespace kiln::kernels {

std::span<const KernelBench> kernel_benches() noexcept {
  static const std::array kBenches = {dsv41_kv_insert::kernel_bench(), dsv41_decode::mega_bench(),
                                      dsv41_decode::swapab_bench(), kimi_k3_mla::attend_bench()};
  return kBenches;
}

}  // namespace kiln::kernels
