// The kernel of the benchmarks that start warm: little to compile, and a cubin of 40 KB.
#pragma once

#include <string>
#include <string_view>

#include "kiln/kernel_spec.hpp"

namespace kiln::bench {

inline constexpr std::string_view kTableSource = R"(
#include "jit/key.cuh"
__device__ int table[9000] = {1};
extern "C" __global__ void entry(int* x) { *x = table[*x] + key::offset; }
)";

/// The same kernel under a key of its own for each number. Its source is "table.cu".
inline KernelSpec table_spec(int number) {
  return {.name = "table",
          .source = "table.cu",
          .key = {{"offset", "i32", std::to_string(number)}},
          .builtins = Builtins::minimal};
}

}  // namespace kiln::bench
