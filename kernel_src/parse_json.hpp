// JSON text to a document, with the place of each fault of syntax.
//
// Threads: a pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "kiln/error.hpp"

namespace kiln::kernels {

/// `file` is what errors call the text.
///
/// Errors  invalid_argument with file, line and column: a fault of syntax, a member that appears
///         twice, and brackets within brackets 64 times over
Result<nlohmann::json> parse_json(std::string_view text, std::string_view file);

}  // namespace kiln::kernels
