// Compiles some entries of a cache again and compares the bytes: the proof that a cache holds what
// its keys say.
//
// Threads: used by the main thread alone.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/settings.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cli {

struct RebuiltEntry {
  cache::Digest key{};
  std::string why{};  ///< why it could not be built again, or what differs
};

struct RebuildReport {
  std::size_t same = 0;
  std::vector<RebuiltEntry> different{};
  /// Those whose sources, or whose compiler, are not here.
  std::vector<RebuiltEntry> skipped{};
};

/// Builds up to `count` undamaged entries of `entries` again, chosen at random. The sources are the
/// built-in ones and those of KILN_SOURCE_DIR.
std::variant<RebuildReport, Failure> rebuild_sample(const cache::Store& store,
                                                    std::vector<cache::EntryInfo> entries,
                                                    std::size_t count, const Settings& settings);

}  // namespace kiln::cli
