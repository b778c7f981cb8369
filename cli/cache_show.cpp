// kiln cache show: one entry, its key text, its facts and its sizes.
#include <algorithm>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/entry_facts.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kKeyDigits = 32;

struct Arguments {
  Given given{};
  std::string key{};
};

std::string check_key(std::string& key) {
  for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool digits =
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (digits && !key.empty() && key.size() <= kKeyDigits) return {};
  return "\"" + key + "\" is no key: give up to 32 hexadecimal digits, as kiln cache ls shows them";
}

// The one entry whose name starts with `prefix`.
std::variant<cache::EntryInfo, Failure> find(const cache::Store& store, const std::string& prefix) {
  std::vector<cache::EntryInfo> matches;
  auto entries = store.list();
  if (!entries) return unreadable_cache(entries.error());
  for (auto& info : *entries)
    if (info.name.hex().starts_with(prefix)) matches.push_back(std::move(info));
  if (matches.empty())
    return Failure{.exit = ExitCode::failed,
                   .code = "not_found",
                   .message = "there is no entry " + prefix +
                              (prefix.size() < kKeyDigits ? "..." : "") + " in " +
                              store.directory().string()};
  if (matches.size() == 1) return std::move(matches.front());
  std::string names;
  for (const auto& match : matches) names += "\n  " + match.name.hex();
  return usage_failure(prefix + " is the start of " + std::to_string(matches.size()) +
                       " keys, give more digits:" + names);
}

Outcome run(const Arguments& arguments, Output& output) {
  auto opened =
      open_cache(arguments.given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);
  auto found = find(store, arguments.key);
  if (auto* failure = std::get_if<Failure>(&found)) return std::move(*failure);
  const auto& info = std::get<cache::EntryInfo>(found);
  const auto entry = store.read(info.name);
  if (!entry) return failure_of(entry.error());

  const auto facts = facts_of(*entry);
  output.line("key         " + info.name.hex());
  output.line("file        " + bytes_text(info.file_bytes));
  output.line("cubin       " + bytes_text(entry->payload().size()));
  output.line("facts");
  // JSON escapes control characters by itself.
  if (facts.is_object())
    for (const auto& [name, fact] : facts.items()) output.line("  " + name + ": " + fact.dump());
  output.line("key text");
  for (auto rest = entry->key_text(); !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size() - 1);
    output.line("  " + printable(rest.substr(0, end + (rest[end] == '\n' ? 0 : 1))));
    rest.remove_prefix(end + 1);
  }
  output.object({{"key", info.name.hex()},
                 {"cache_dir", store.directory().string()},
                 {"file_bytes", info.file_bytes},
                 {"bytes", entry->payload().size()},
                 {"facts", facts},
                 {"key_text", std::string(entry->key_text())}});
  return ExitCode::done;
}

}  // namespace

Verb add_cache_show(CLI::App& cache) {
  auto* command = cache.add_subcommand("show", "Show the key text and the facts of one entry");
  command->footer(
      "Examples:\n"
      "  kiln cache show 5f3a\n"
      "  kiln cache show 5f3a --json --cache-dir /var/cache/kiln");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("KEY", arguments->key, "The entry's key, or a start of it that no other has")
      ->required()
      ->type_name("")
      ->transform(CLI::Validator(check_key, ""));
  add_cache_directory(*command, arguments->given);
  return {command, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
