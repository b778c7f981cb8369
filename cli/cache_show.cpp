// kiln cache show: one entry, its key text, its facts and its sizes.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/entry_facts.hpp"
#include "cli/entry_search.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

struct CacheShowArguments {
  Given given{};
  std::string key{};
};

Outcome run(const CacheShowArguments& arguments, Output& output) {
  auto opened =
      open_cache(arguments.given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);
  auto found = find_entry(store, arguments.key);
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
  auto& verb = add_verb(cache, "show", "Show the key text and the facts of one entry",
                        "Examples:\n"
                        "  kiln cache show 5f3a\n"
                        "  kiln cache show 5f3a --json --cache-dir /var/cache/kiln");
  const auto arguments = std::make_shared<CacheShowArguments>();
  add_key(verb, arguments->key);
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
