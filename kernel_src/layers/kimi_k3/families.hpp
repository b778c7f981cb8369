// The families of MLA kernels behind one entry point, told apart by what their tensors look like.
//
// Threads: values and pure functions.
#pragma once

#include <string_view>

#include "kernel_src/kimi_k3_mla/arguments.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"

namespace kiln::kernels::kimi_k3 {

using kimi_k3_mla::DataType;

/// What a family is chosen by.
struct MlaDimensions {
  u64 latent = 0;     // elements of a value, the first of its key
  u64 rope = 0;       // elements of the rest of a key
  u64 page_keys = 0;  // of the cache
  DataType query = DataType::uint8;
  DataType cache = DataType::uint8;
  DataType output = DataType::uint8;
  bool operator==(const MlaDimensions&) const = default;
};

enum class MlaFamily : unsigned char {
  kimi_k3_mla,  ///< 512 + 64, pages of 64, E4M3 in and bf16 out
};

/// "kimi_k3_mla".
KILN_API std::string_view to_string(MlaFamily family) noexcept;

/// Of a call's query, cache and output.
/// Errors  invalid_argument naming a tensor of too few dimensions, or an output that is wider than
///         a key
KILN_API Result<MlaDimensions> dimensions_of(const kimi_k3_mla::Arguments& arguments);

/// The family that takes calls of these dimensions.
/// Errors  unsupported naming them and those that a family has
KILN_API Result<MlaFamily> family_of(const MlaDimensions& dimensions);

}  // namespace kiln::kernels::kimi_k3
