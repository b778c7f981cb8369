// Finds NVRTC on this machine without loading it, in under a millisecond.
//
// Threads: pure functions and values.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "kiln/options.hpp"
#include "runtime/nvrtc_files.hpp"

namespace kiln {

/// Where the machine keeps what the search looks for. Tests point it elsewhere.
struct SearchRoots {
  /// Holds "cuda" and "cuda-<version>".
  std::filesystem::path prefix = "/usr/local";
  std::filesystem::path loader_cache = "/etc/ld.so.cache";
  /// Where the loader looks last.
  std::vector<std::filesystem::path> loader_directories = default_loader_directories();
  /// Hold "python3*" directories of packages that came with the system or were added to it.
  std::vector<std::filesystem::path> python_roots = {"/usr/local/lib", "/usr/lib"};

  static std::vector<std::filesystem::path> default_loader_directories();
};

struct NvrtcSearch {
  std::optional<NvrtcFiles> found{};
  /// "path: why not", in the order of the search, up to where it ended.
  std::vector<std::string> tried{};
  /// The only place that was looked in, by wish; mostly empty.
  std::filesystem::path asked_for{};
};

/// Looks in `explicit_path` (a library, a directory that holds one, the root of a toolkit or of an
/// environment with wheels) and nowhere else when that is set. Else, in order: CUDA_HOME and
/// CUDA_PATH, the usual prefix, the loader's directories (LD_LIBRARY_PATH, its cache, its
/// defaults), and Python wheels (VIRTUAL_ENV, CONDA_PREFIX, the user's, the system's).
NvrtcSearch find_nvrtc(const std::filesystem::path& explicit_path,
                       const EnvironmentReader& environment, const SearchRoots& roots = {});

/// no_toolchain, with every path that was tried and the cure.
Error no_nvrtc_error(const NvrtcSearch& search);

}  // namespace kiln
