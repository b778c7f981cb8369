// The MLA benchmarks: a decode step of long requests.
//
// Threads: as bench::Device says.
#pragma once

#include "kernel_src/benches.hpp"

namespace kiln::kernels::kimi_k3_mla {

KernelBench attend_bench() noexcept;

}  // namespace kiln::kernels::kimi_k3_mla
