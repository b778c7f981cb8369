// Directories of the store: made when needed, listed, and cleared of what is in the way.
// Failures are errno values; 0 is success. Dot names are never entries.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/file.hpp"
#include "cache/system_calls.hpp"

namespace kiln::cache {

/// Whether what is written must survive a power cut before the call returns.
enum class Durability : unsigned char { relaxed, durable };

/// ".<purpose>-<16 random hex digits>"
std::string dot_name(std::string_view purpose);

/// Makes `path` below `base` and what is missing above it; what is there already is left as it is.
/// Where a group shares the store, what is made below the root belongs to it.
int make_with_parents(const SystemCalls& calls, int base, const std::string& path,
                      Durability durability, std::optional<gid_t> group);

int sync_directory(const SystemCalls& calls, int directory, Durability durability);

struct Listing {
  Fd directory{};                    ///< empty where it is not there
  std::vector<std::string> names{};  ///< sorted
  int error = 0;                     ///< why there are none
};
enum class DotNames : unsigned char { none, only };

/// The names in `relative` below the directory `base`. None, and no error, where it is not there.
Listing names_in(const SystemCalls& calls, int base, const std::string& relative,
                 DotNames dots = DotNames::none);

struct Removal {
  int error = 0;
  bool removed = false;
};

/// Removes `leaf` if it is still the file that was examined; another one is left alone, which is
/// no error. A directory with something in it is moved aside under a dot name: whose it is, we do
/// not know.
Removal remove_if_unchanged(const SystemCalls& calls, int directory, const std::string& leaf,
                            const FileIdentity& examined);

/// Removes temporary files that are older than an hour, whose writers were killed; how many, and
/// why not more.
struct Sweep {
  std::size_t removed = 0;
  int error = 0;
};
Sweep sweep_temporaries(const SystemCalls& calls, int base, const std::string& relative);

}  // namespace kiln::cache
