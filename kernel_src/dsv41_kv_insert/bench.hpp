// The cache writer's benchmark: rows of a model in pages of 128 slots, every row written.
//
// Threads: as bench::Device says.
#pragma once

#include "kernel_src/benches.hpp"

namespace kiln::kernels::dsv41_kv_insert {

KernelBench kernel_bench() noexcept;

}  // namespace kiln::kernels::dsv41_kv_insert
