// Good calls of Kimi-K3 MLA, for tests to spoil.
#pragma once

#include <cstdint>

#include "kernel_src/kimi_k3_mla/contract.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

// Nothing is behind these addresses, and nothing is read.
template <class Data = const void>
Data* at(std::uintptr_t address) {
  return reinterpret_cast<Data*>(address);
}

inline constexpr std::uintptr_t kQuery = 0x1000'0000, kCache = 0x2000'0000, kTables = 0x3000'0000,
                                kLengths = 0x3100'0000, kStarts = 0x3200'0000,
                                kOutput = 0x4000'0000, kWorkspace = 0x5000'0000;

/// 3 requests of up to 4 new tokens, 12 heads, tables of 8 pages over a cache of 100.
inline Arguments packed() {
  return {.query = Tensor::dense(at(kQuery), DataType::e4m3, {7, 12, 576}),
          .cache = Tensor::dense(at(kCache), DataType::e4m3, {100, 64, 576}),
          .block_tables = Tensor::dense(at(kTables), DataType::int32, {3, 8}),
          .lengths = Tensor::dense(at(kLengths), DataType::int32, {3}),
          .query_starts = Tensor::dense(at(kStarts), DataType::int32, {4}),
          .output = OutputTensor::dense(at<void>(kOutput), DataType::bfloat16, {7, 12, 512}),
          .workspace = at<void>(kWorkspace),
          .workspace_bytes = 1 << 20,
          .softmax_scale = 0.07f,
          .max_query = 4};
}

/// The same with 2 new tokens of each.
inline Arguments uniform() {
  Arguments made = packed();
  made.query = Tensor::dense(at(kQuery), DataType::e4m3, {3, 2, 12, 576});
  made.output = OutputTensor::dense(at<void>(kOutput), DataType::bfloat16, {3, 2, 12, 512});
  made.query_starts = {};
  made.max_query = 0;
  return made;
}

}  // namespace kiln::kernels::kimi_k3_mla::test
