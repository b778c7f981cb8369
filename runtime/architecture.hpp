// Architectures to compile for: "sm_", the number of a compute capability, and what comes with it.
//
// Threads: pure functions and values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kiln/device_info.hpp"
#include "kiln/error.hpp"

namespace kiln {

struct Architecture {
  int sm = 0;       ///< 90 for compute capability 9.0
  char suffix = 0;  ///< 'a': this architecture only, 'f': its family, 0: plain
  bool operator==(const Architecture&) const = default;
  std::string to_text() const;
};

/// Reads one such as "sm_86", "sm_90a" or "sm_100f"; errors name what may have been meant.
/// Errors  invalid_argument for what is not written as one; unsupported for a virtual one
///         ("compute_90") and for one that no compiler knows ("sm_80a").
Result<Architecture> parse_architecture(std::string_view text);

/// What an NVRTC of this version compiles for, given the numbers that it lists itself (which come
/// without suffixes): in rising order, each number followed by its suffixed forms.
std::vector<std::string> with_suffixes(const std::vector<int>& numbers, int major, int minor);

}  // namespace kiln
