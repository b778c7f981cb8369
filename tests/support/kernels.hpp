// Small user kernels for tests.
#pragma once

#include <string>
#include <string_view>

#include "kiln/kernel_spec.hpp"
#include "kiln/runtime.hpp"

namespace kiln::test {

/// y[i] = x[i] * factor + offset, with the offset compiled in; blockDim.x threads, one each.
inline constexpr std::string_view kScaleSource = R"(
#include "jit/key.cuh"
extern "C" __global__ void entry(const float* x, float* y, float factor, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = x[i] * factor + key::offset;
}
)";

inline KernelSpec scale_spec(int offset) {
  return {.name = "scale",
          .source = "scale.cu",
          .key = {{"offset", "i32", std::to_string(offset)}},
          .builtins = Builtins::minimal};
}

/// A kernel of `source` without a key.
inline KernelSpec plain_spec(std::string source) {
  return {.name = "plain", .source = std::move(source)};
}

/// The error of something that must fail, or a text that says it did not.
template <class T>
std::string message_of(const Result<T>& result) {
  return result ? std::string("(no error)") : result.error().message();
}
inline std::string message_of(const Status& status) {
  return status ? std::string("(no error)") : status.error().message();
}

}  // namespace kiln::test
