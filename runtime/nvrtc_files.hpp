// The files that make up an NVRTC: its library and the builtins beside it, told apart by what the
// files say about themselves, without loading them.
//
// Threads: pure functions and values.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "runtime/toolchain.hpp"

namespace kiln {

/// Before this, architectures and options that Kiln needs are missing.
inline constexpr int kOldestNvrtcMajor = 12;
inline constexpr int kOldestNvrtcMinor = 8;

struct NvrtcFiles {
  std::filesystem::path library{};   ///< absolute
  std::filesystem::path builtins{};  ///< absolute
  int major = 0;
  int minor = 0;
  std::string library_build_id{};
  std::string builtins_build_id{};
  std::string how_found{};  ///< which rule of the search led here
  /// Where several builtins lie beside the library and its name does not say which are its own:
  /// what was there and what was taken. Else empty.
  std::string ambiguity{};

  ToolchainId toolchain() const { return {major, minor, library_build_id, builtins_build_id}; }
};

/// Examines the file `library`, which must be absolute.
/// Errors  no_toolchain, with the reason alone: not a shared library of this machine, not NVRTC,
///         too old, or without its builtins.
Result<NvrtcFiles> examine_nvrtc(const std::filesystem::path& library);

/// The libraries in `directory` that may be an NVRTC, newest first; never the ".alt" ones.
std::vector<std::filesystem::path> nvrtc_candidates(const std::filesystem::path& directory);

/// The numbers of "<prefix>12.8.93"; empty unless `name` is `prefix` and numbers with dots between.
std::vector<int> version_after(std::string_view name, std::string_view prefix);

}  // namespace kiln
