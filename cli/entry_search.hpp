// Entries by the start of their key, as kiln cache show and extract take them.
//
// Threads: pure functions and values.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <variant>

#include "cli/exit_code.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cli {

/// KEY, the same for every command: up to 32 hexadecimal digits, which end up in lower case.
void add_key(CLI::App& command, std::string& key);

/// The one entry whose name starts with `key`.
std::variant<cache::EntryInfo, Failure> find_entry(const cache::Store& store,
                                                   const std::string& key);

}  // namespace kiln::cli
