#include "kernel_src/kimi_k3_mla/arguments.hpp"

#include <string>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/kimi_k3_mla/contract.hpp"

namespace kiln::kernels::kimi_k3_mla {

std::string_view to_string(DataType type) noexcept {
  switch (type) {
    case DataType::e4m3:
      return "float8_e4m3fn";
    case DataType::e5m2:
      return "float8_e5m2";
    case DataType::nvfp4:
      return "nvfp4";
    case DataType::uint8:
      return "uint8";
    case DataType::bfloat16:
      return "bfloat16";
    case DataType::float16:
      return "float16";
    case DataType::float32:
      return "float32";
    case DataType::int32:
      return "int32";
    case DataType::int64:
      return "int64";
  }
  return "an unknown type";
}

Status check_device(const Call& call, int device) {
  if (call.device < 0 || call.device == device) return {};
  return ArgumentChecks{"kimi_k3_mla"}.wrong(
      "the tensors' device", std::to_string(call.device),
      "the launches were prepared for device " + std::to_string(device) +
          "; prepare others with a context of the tensors' device current");
}

Args args_of(const Call& call, const Plan& plan) noexcept {
  const Workspace at = workspace_of(plan);
  auto* workspace = static_cast<u8*>(at.bytes == 0 ? nullptr : call.workspace);
  const auto part = [&](u64 offset) { return workspace == nullptr ? nullptr : workspace + offset; };
  return {.query = static_cast<const u8*>(call.query),
          .block_tables = call.block_tables,
          .seq_lens = call.lengths,
          .query_starts = call.query_starts,
          .output = static_cast<u16*>(call.output),
          .partial_outputs = reinterpret_cast<u16*>(part(at.outputs)),
          .partial_maxima = reinterpret_cast<float*>(part(at.maxima)),
          .partial_sums = reinterpret_cast<float*>(part(at.sums)),
          .table_stride = call.table_stride,
          .heads = call.heads,
          .query_len = static_cast<u32>(call.max_query),
          .splits = plan.num_split,
          .unsplit_items = static_cast<u32>(plan.unsplit_items),
          .row_tiles = plan.row_tiles,
          .score_scale = call.softmax_scale_log2,
          .output_scale = call.output_scale,
          .batch = static_cast<u32>(call.batch),
          .table_width = call.pages == 0 ? 0 : static_cast<u32>(call.table_width)};
}

}  // namespace kiln::kernels::kimi_k3_mla
