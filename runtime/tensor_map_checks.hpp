// The rules of cuTensorMapEncodeTiled, checked before the driver, which answers all of them with
// the same CUDA_ERROR_INVALID_VALUE.
//
// Threads: pure functions.
#pragma once

#include "kiln/tensor_map.hpp"

namespace kiln {

/// Every rule that cuda.h states for `spec`.
/// Errors  invalid_argument for the first that is broken, naming the field, its value, the limit
///         and what to do.
Status check_tensor_map(const TensorMapSpec& spec);

/// The rules of the address alone; the rest of `spec` is known to be right.
Status check_tensor_address(const TensorMapSpec& spec);

}  // namespace kiln
