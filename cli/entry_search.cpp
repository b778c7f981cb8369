#include "cli/entry_search.hpp"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "cli/output.hpp"
#include "cli/settings.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kKeyDigits = 32;

std::string check_key(std::string& key) {
  for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool digits =
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (digits && !key.empty() && key.size() <= kKeyDigits) return {};
  return "\"" + shortened(key) +
         "\" is no key: give up to 32 hexadecimal digits, as kiln cache ls shows them";
}

}  // namespace

void add_key(CLI::App& command, std::string& key) {
  command.add_option("KEY", key, "The entry's key, or a start of it that no other has")
      ->required()
      ->type_name("")
      ->transform(CLI::Validator(check_key, ""));
}

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
