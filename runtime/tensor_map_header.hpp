// The text of jit/tensor_map.cuh: kiln::TensorMap for device code without CUDA's headers. A copy of
// the struct in kiln/tensor_map.hpp, which NVRTC cannot read for its <cstdint>.
//
// Threads: constant data.
#pragma once

#include <string_view>

namespace kiln {

inline constexpr std::string_view kTensorMapHeader = R"(#pragma once
namespace kiln {
struct alignas(128) TensorMap {
  unsigned long long words[16];
};
static_assert(sizeof(TensorMap) == 128 && alignof(TensorMap) == 128, "as TMA reads it");
}  // namespace kiln
)";

}  // namespace kiln
