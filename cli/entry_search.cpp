#include "cli/entry_search.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/distinctions.hpp"
#include "cli/entry_facts.hpp"
#include "cli/settings.hpp"

namespace kiln::cli {

std::variant<cache::EntryInfo, Failure> find_entry(const cache::Store& store,
                                                   const std::string& key) {
  std::vector<cache::EntryInfo> matches;
  auto entries = store.list();
  if (!entries) return unreadable_cache(entries.error());
  for (auto& info : *entries)
    if (info.name.hex().starts_with(key)) matches.push_back(std::move(info));
  if (matches.empty())
    return Failure{.exit = ExitCode::failed,
                   .code = "not_found",
                   .message = "there is no entry " + key + (key.size() < kKeyDigits ? "..." : "") +
                              " in " + store.directory().string() +
                              "; kiln cache ls shows what there is"};
  if (matches.size() == 1) return std::move(matches.front());
  std::string names;
  std::vector<MarkedRow> rows;
  for (const auto& match : matches) {
    const auto entry = store.read(match.name);
    const auto facts = entry ? facts_of(*entry) : nlohmann::json();
    rows.push_back({text_fact(facts, "architecture") + "  " + text_fact(facts, "kernel"),
                    entry ? marks_of(entry->key_text()) : std::vector<std::string>()});
  }
  const auto apart = distinctions(rows);
  for (std::size_t i = 0; i < matches.size(); ++i)
    names += "\n  " + matches[i].name.hex() + "  " + printable(rows[i].group) + apart[i];
  return usage_failure(key + " is the start of " + std::to_string(matches.size()) +
                       " keys, give more digits:" + names);
}

}  // namespace kiln::cli
