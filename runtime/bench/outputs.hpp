// The outputs of arms: poisoned, downloaded, compared.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kiln/bench/device.hpp"

namespace kiln::bench {

using Bytes = std::vector<std::byte>;

/// Fills every output with kPoison.
Status poison(const std::vector<Buffer>& outputs);
Result<std::vector<Bytes>> download(const std::vector<Buffer>& outputs);

/// Where the second differs from the first, in one sentence; empty: nowhere.
std::string first_difference(const std::vector<Bytes>& first, const std::vector<Bytes>& second);

}  // namespace kiln::bench
