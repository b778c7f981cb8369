// A kernel that writes another's input late.
#pragma once

#include <string_view>

namespace kiln::test {

/// Copies words late, and lets the next kernel start early: what depends on it must really wait.
inline constexpr std::string_view kLateCopySource = R"(
extern "C" __global__ void entry(const unsigned* from, unsigned* to, unsigned words) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const long long start = clock64();
  while (clock64() - start < 20000) {}
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    to[i] = from[i];
}
)";

}  // namespace kiln::test
