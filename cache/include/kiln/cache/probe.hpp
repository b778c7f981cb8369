// What a directory would do for a store, found out without leaving anything behind: what is tried
// is tried on a file without a name.
//
// Threads: pure functions and values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "kiln/cache/api.hpp"

namespace kiln::cache {

struct Probe {
  bool exists = false;
  /// Where files would be made: the directory itself, or the nearest one above it that is there.
  std::filesystem::path nearest{};
  /// Why a publish would fail, with the path; empty when it should work.
  std::string trouble{};
  /// Files without a name (O_TMPFILE): a killed publisher leaves nothing. Else named temporaries.
  bool anonymous_files = false;
  /// Whether the kernel takes locks there; empty when that could not be tried.
  std::optional<bool> locks{};
  std::string file_system{};  ///< such as "ext4"; "type 0x..." for one without a name here
  bool network = false;       ///< other machines may share it
  std::optional<std::uint64_t> free_bytes{};
};

/// Looks at the store's directory, which need not exist, and at what is in the way of writing.
KILN_API Probe probe(const std::filesystem::path& directory);

}  // namespace kiln::cache
