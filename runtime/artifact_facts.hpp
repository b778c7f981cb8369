// The facts of an artifact: what its cubin tells, and all of them as the JSON text that lies in its
// entry. No timing and no path in it, so that equal inputs give equal bytes.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kiln/artifact.hpp"
#include "kiln/error.hpp"
#include "runtime/cubin.hpp"

namespace kiln {

/// Fills in what the cubin itself tells of the kernel `facts.symbol`, in place of what is there:
/// registers, shared memory, parameters, bounds and grid control. Done at a compile and at every
/// hit, so that what decides about a launch is never older or other than the code.
/// Errors  invalid_argument when the cubin has no such kernel.
Status read_cubin_facts(const CubinInfo& info, ArtifactFacts& facts);

std::string to_json(const ArtifactFacts& facts);
/// Empty when `text` is not what to_json() writes. Entries made before a fact was known lack it;
/// every such fact is one that read_cubin_facts() fills in.
std::optional<ArtifactFacts> facts_from_json(std::string_view text);

}  // namespace kiln
