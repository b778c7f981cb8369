#include "cli/entry_search.hpp"

#include <utility>
#include <vector>

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
  for (const auto& match : matches) names += "\n  " + match.name.hex();
  return usage_failure(key + " is the start of " + std::to_string(matches.size()) +
                       " keys, give more digits:" + names);
}

}  // namespace kiln::cli
