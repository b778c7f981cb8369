// The facts of an artifact as the JSON text that lies in its entry. No timing and no path in it, so
// that equal inputs give equal bytes.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kiln/artifact.hpp"

namespace kiln {

std::string to_json(const ArtifactFacts& facts);
/// Empty when `text` is not what to_json() writes.
std::optional<ArtifactFacts> facts_from_json(std::string_view text);

}  // namespace kiln
