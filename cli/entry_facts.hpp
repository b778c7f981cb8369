// What an entry's publisher says of it, for showing: the facts are read as whatever they are.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kiln/cache/store.hpp"

namespace kiln::cli {

/// The facts as JSON; null when they are not.
nlohmann::json facts_of(const cache::Entry& entry);
/// The fact `name` where it is a text, else "".
std::string text_fact(const nlohmann::json& facts, const char* name);

/// A time in seconds since 1970 as "2026-11-30T02:18:31Z".
std::string time_text(std::int64_t seconds);
/// A span of time in words that fit: "5 min", "3 h", "12 d".
std::string age_text(std::int64_t seconds);

/// `text` with blanks up to `columns`, behind it or, when that is negative, before it.
std::string padded(std::string text, int columns);

}  // namespace kiln::cli
