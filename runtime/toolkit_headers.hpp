// The headers of the CUDA toolkit that belongs to an NVRTC: cuda_fp16.h, <cuda/std/...> and so on.
//
// Threads: pure functions and values.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kiln/options.hpp"
#include "runtime/nvrtc_files.hpp"

namespace kiln {

struct ToolkitHeaders {
  /// Directories for angle-bracket includes, in order; empty when no toolkit of the NVRTC's version
  /// was found.
  std::vector<std::filesystem::path> roots{};
  /// Which rule of the search led there; empty when none did.
  std::string how_found{};
  /// "path: why not", in the order of the search.
  std::vector<std::string> skipped{};
};

/// Looks beside the library, in the toolkit or among the wheels that it came with, then in
/// CUDA_HOME and CUDA_PATH. Headers of another version, and directories that hold the C library's
/// headers as well, are skipped.
ToolkitHeaders find_toolkit_headers(const NvrtcFiles& nvrtc, const EnvironmentReader& environment);

/// The same for a version whose NVRTC is not here, so that a filled cache serves kernels with
/// toolkit headers: CUDA_HOME, CUDA_PATH, then /usr/local/cuda-<version> and /usr/local/cuda.
ToolkitHeaders find_toolkit_headers(int major, int minor, const EnvironmentReader& environment);

}  // namespace kiln
