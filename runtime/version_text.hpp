// Versions as people write them.
//
// Threads: pure functions.
#pragma once

#include <string>

namespace kiln {

inline std::string version_text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

/// Of the one number that CUDA uses for its versions, such as 13000.
inline std::string cuda_version_text(int version) {
  return version_text(version / 1000, version % 1000 / 10);
}

}  // namespace kiln
