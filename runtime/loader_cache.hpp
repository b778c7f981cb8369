// The dynamic loader's cache of libraries (/etc/ld.so.cache), in glibc's format "1.1".
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// The paths that the cache gives for names that begin with `prefix`, in the order of the file.
/// Empty for bytes that are no such cache; entries that do not fit are left out.
std::vector<std::string> loader_cache_paths(std::string_view cache, std::string_view prefix);

}  // namespace kiln
