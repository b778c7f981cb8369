// What differs between two keys, told to people and to programs.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "kiln/key_text.hpp"

namespace kiln::cli {

/// One line for each, such as "constant tile: u32 128 in the request, u32 64 in the entry", where
/// `first` and `second` say whose keys they are.
std::vector<std::string> lines_of(const std::vector<KeyDifference>& differences,
                                  const std::string& first, const std::string& second);

/// As an array; what one key lacks is null there.
Json json_of_differences(const std::vector<KeyDifference>& differences);

}  // namespace kiln::cli
