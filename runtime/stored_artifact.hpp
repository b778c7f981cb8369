// An artifact from an entry of the store: the checks that the store cannot do, since it knows
// nothing of CUDA.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kiln/artifact.hpp"
#include "kiln/cache/store.hpp"

namespace kiln {

/// The artifact in `entry`, which was found under `key` for `architecture`. Empty when its facts or
/// its code will not do; `why` then says what was wrong.
std::optional<Artifact> artifact_of(cache::Entry entry, const cache::Digest& key,
                                    std::string_view architecture, std::string& why);

}  // namespace kiln
