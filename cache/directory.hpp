// Directories of the store: made when needed, listed, and cleared of what is in the way.
// Failures are errno values; 0 is success. Dot names are never entries.
#pragma once

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

/// Opens the root to read below it; a link that the user chose is followed.
Opened open_root(const SystemCalls& calls, const std::string& root);

/// Opens `relative` below `root` to write into it (`relative` may be empty: the root itself), and
/// makes what is missing. ENOENT when somebody deletes the tree at the same time: try again.
Opened open_for_writing(const SystemCalls& calls, const std::string& root,
                        const std::string& relative, Durability durability);

int sync_directory(const SystemCalls& calls, int directory, Durability durability);

struct Listing {
  std::vector<std::string> names{};  ///< sorted, without dot names
  int error = 0;                     ///< why there are none
};

/// The names in `relative` below the directory `base`. None, and no error, where it is not there.
Listing names_in(const SystemCalls& calls, int base, const std::string& relative);

/// Removes `leaf` if it is still the file that was examined; another one is left alone, which is
/// no error. A directory with something in it is moved aside under a dot name: whose it is, we do
/// not know.
int remove_if_unchanged(const SystemCalls& calls, int directory, const std::string& leaf,
                        const FileIdentity& examined);

/// Removes temporary files that are older than an hour: their writers were killed.
void sweep_temporaries(const SystemCalls& calls, int directory);

}  // namespace kiln::cache
