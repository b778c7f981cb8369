// Entries by the start of their key, as kiln cache show and extract take them.
//
// Threads: pure functions and values.
#pragma once

#include <cstddef>
#include <string>
#include <variant>

#include "cli/exit_code.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cli {

/// Hexadecimal digits of a whole key.
inline constexpr std::size_t kKeyDigits = 32;

/// The one entry whose name starts with `key`.
std::variant<cache::EntryInfo, Failure> find_entry(const cache::Store& store,
                                                   const std::string& key);

}  // namespace kiln::cli
