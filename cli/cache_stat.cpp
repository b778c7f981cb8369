// kiln cache stat: how much is in a cache, and of what age.
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/entry_facts.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

Json json_of(const cache::Totals& totals) {
  return {{"count", totals.entries}, {"bytes", totals.bytes}};
}

std::string text_of(const cache::Totals& totals) {
  return std::to_string(totals.entries) + ", " + bytes_text(totals.bytes);
}

Outcome run_stat(const Given& given, Output& output) {
  const auto environment = process_environment();
  auto opened = open_cache(given, environment, output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);
  const auto settings = settings_from(given, environment);
  if (!settings) return failure_of(settings.error());
  const auto size = store.measure();
  if (!size) return unreadable_cache(size.error());

  const auto limit = settings->runtime.cache_limits.max_bytes;
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  output.line("cache        " + printable(store.directory().string()));
  output.line("entries      " + text_of(size->entries));
  output.line("limit        " + (limit == 0 ? std::string("none") : bytes_text(limit)));
  if (size->oldest_use)
    output.line("last used    " + age_text(now - *size->newest_use) + " to " +
                age_text(now - *size->oldest_use) + " ago");
  output.line("records      " + text_of(size->records));
  output.line("temporaries  " + text_of(size->temporaries));
  output.line("quarantine   " + text_of(size->quarantined));
  output.line("kept totals  " + (!size->kept                    ? std::string("not all counted yet")
                                 : *size->kept == size->entries ? std::string("exact")
                                                                : text_of(*size->kept)));
  if (size->free_bytes) output.line("free         " + bytes_text(*size->free_bytes));
  const auto time = [](const std::optional<std::int64_t>& seconds) {
    return seconds ? Json(time_text(*seconds)) : Json();
  };
  output.object({{"cache_dir", store.directory().string()},
                 {"entries", size->entries.entries},
                 {"total_bytes", size->entries.bytes},
                 {"max_bytes", limit == 0 ? Json() : Json(limit)},
                 {"oldest_use", time(size->oldest_use)},
                 {"newest_use", time(size->newest_use)},
                 {"records", json_of(size->records)},
                 {"temporaries", json_of(size->temporaries)},
                 {"quarantine", json_of(size->quarantined)},
                 {"kept_totals", size->kept ? json_of(*size->kept) : Json()},
                 {"free_bytes", size->free_bytes ? Json(*size->free_bytes) : Json()}});
  return ExitCode::done;
}

}  // namespace

Verb add_cache_stat(CLI::App& cache) {
  auto& verb = add_verb(cache, "stat", "Show how much is in a cache",
                        "Examples:\n"
                        "  kiln cache stat\n"
                        "  kiln cache stat --cache-dir /var/cache/kiln --json");
  const auto given = std::make_shared<Given>();
  add_cache_directory(verb, *given);
  return {&verb, [given](Output& output) { return run_stat(*given, output); }};
}

}  // namespace kiln::cli
