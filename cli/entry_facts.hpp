// What an entry's publisher says of it, for showing: the facts are read as whatever they are.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kiln/cache/store.hpp"

namespace kiln::cli {

/// The facts as JSON; null when they are not.
nlohmann::json facts_of(const cache::Entry& entry);
/// The fact `name` where it is a text, else "".
std::string text_fact(const nlohmann::json& facts, const char* name);

/// `text` with blanks up to `columns`, behind it or, when that is negative, before it.
std::string padded(std::string text, int columns);

}  // namespace kiln::cli
