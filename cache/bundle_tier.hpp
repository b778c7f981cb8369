// A bundle as a tier: the file is used as it is, and nothing is unpacked.
//
// Threads: see Tier.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "cache/system_calls.hpp"
#include "cache/tier.hpp"
#include "kiln/cache/signing.hpp"

namespace kiln::cache {

/// Opens the bundle `path`, which one of `signers` must have signed; whether it is refused, the
/// first question to the tier tells. `calls` must outlive it.
std::unique_ptr<Tier> open_bundle_tier(const std::filesystem::path& path,
                                       std::vector<PublicKey> signers, const SystemCalls& calls);

}  // namespace kiln::cache
