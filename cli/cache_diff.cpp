// kiln cache diff: in what the keys of two entries differ.
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/entry_search.hpp"
#include "cli/key_difference.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/key_text.hpp"

namespace kiln::cli {
namespace {

struct CacheDiffArguments {
  Given given{};
  std::string first{};
  std::string second{};
};

Outcome run(const CacheDiffArguments& arguments, Output& output) {
  auto opened =
      open_cache(arguments.given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);
  Json result;
  std::string texts[2];
  std::string names[2];
  for (const int which : {0, 1}) {
    auto found = find_entry(store, which == 0 ? arguments.first : arguments.second);
    if (auto* failure = std::get_if<Failure>(&found)) return std::move(*failure);
    const auto& name = std::get<cache::EntryInfo>(found).name;
    const auto entry = store.read(name);
    if (!entry) return failure_of(entry.error());
    texts[which] = entry->key_text();
    names[which] = name.hex();
    result[which == 0 ? "first" : "second"] = names[which];
  }
  const auto differences = key_differences(texts[0], texts[1]);
  for (const auto& line : lines_of(differences, names[0].substr(0, 8), names[1].substr(0, 8)))
    output.line(line);
  if (differences.empty()) output.line("the same key");
  result["differences"] = json_of_differences(differences);
  output.object(result);
  return ExitCode::done;
}

}  // namespace

Verb add_cache_diff(CLI::App& cache) {
  auto& verb = add_verb(cache, "diff", "Show in what the keys of two entries differ",
                        "Examples:\n"
                        "  kiln cache diff 5f3a 81c2\n"
                        "  kiln cache diff 5f3a 81c2 --json --cache-dir /var/cache/kiln");
  const auto arguments = std::make_shared<CacheDiffArguments>();
  add_key(verb, arguments->first, "FIRST");
  add_key(verb, arguments->second, "SECOND");
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
