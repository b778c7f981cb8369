// The text of jit/key.cuh: a key's fields as constants for device code.
//
// Threads: a pure function.
#pragma once

#include <span>
#include <string>

#include "kiln/error.hpp"
#include "kiln/key.hpp"

namespace kiln {

/// Errors  invalid_argument for a name that is no identifier, a keyword or used twice, an unknown
///         type, and a value that is not written as kiln::key_values() does or does not fit.
Result<std::string> make_key_header(std::span<const KeyValue> values);

}  // namespace kiln
