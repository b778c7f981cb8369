#include "kernel_src/kimi_k3_mla/arguments.hpp"

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

}  // namespace kiln::kernels::kimi_k3_mla
