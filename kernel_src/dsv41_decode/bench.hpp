// The decode benchmarks: a step's sparse attention at the model's list widths, every slot listed.
//
// Threads: as bench::Device says.
#pragma once

#include "kernel_src/benches.hpp"

namespace kiln::kernels::dsv41_decode {

KernelBench swapab_bench() noexcept;
KernelBench mega_bench() noexcept;

}  // namespace kiln::kernels::dsv41_decode
