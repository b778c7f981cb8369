// What is installed: Kiln, the NVRTC that it would use, the driver. Looks and loads nothing.
//
// Threads: pure functions and values.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"
#include "kiln/options.hpp"

namespace kiln {

/// Kiln's version, such as "0.1.0".
KILN_API std::string_view version() noexcept;

/// An NVRTC on this machine, as its files describe themselves.
struct ToolchainInfo {
  std::string version{};             ///< such as "13.0"
  std::string identity{};            ///< the line that stands in compile keys and reports
  std::filesystem::path library{};   ///< absolute
  std::filesystem::path builtins{};  ///< absolute
  std::string how_found{};           ///< which rule of the search led here
  /// Where several builtins lie beside the library and its name does not say which are its own:
  /// what was there and what was taken. Else empty.
  std::string ambiguity{};
};

/// The NVRTC that a Runtime with these options would load: RuntimeOptions::nvrtc and nothing else
/// where that is set, else the first of the search in `environment`.
/// Errors  no_toolchain, with every path that was tried and the cure.
KILN_API Result<ToolchainInfo> find_toolchain(const RuntimeOptions& options,
                                              const EnvironmentReader& environment);

/// The headers of the CUDA toolkit that a Runtime with these options would include by angle
/// brackets; they are of the NVRTC's version or none.
struct ToolkitInfo {
  std::vector<std::filesystem::path> directories{};  ///< in order; empty when none was found
  std::string how_found{};                           ///< which rule of the search led here
  std::vector<std::string> skipped{};  ///< "path: why not", in the order of the search
};

/// Errors  as find_toolchain().
KILN_API Result<ToolkitInfo> find_toolkit(const RuntimeOptions& options,
                                          const EnvironmentReader& environment);

/// The CUDA version of the installed driver, such as "13.0"; empty without a driver.
KILN_API std::string driver_version();

}  // namespace kiln
