// kiln cache clear: removes all entries, records and quarantined files of a cache.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

Outcome run_clear(const Given& given, Output& output) {
  auto opened = open_cache(given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& store = std::get<cache::Store>(opened);
  const auto removed = store.clear();
  if (!removed) return unreadable_cache(removed.error());
  output.line(entries_text(removed->entries) + ", " + bytes_text(removed->bytes) +
              ", removed from " + printable(store.directory().string()));
  output.object({{"cache_dir", store.directory().string()},
                 {"removed", removed->entries},
                 {"removed_bytes", removed->bytes}});
  return ExitCode::done;
}

}  // namespace

Verb add_cache_clear(CLI::App& cache) {
  auto& verb =
      add_verb(cache, "clear", "Remove everything from a cache",
               "Examples:\n"
               "  kiln cache clear --cache-dir /var/cache/kiln\n"
               "The directory stays, and so do files in it that are not Kiln's. It may be\n"
               "done while others use the cache: they make again what they miss.");
  const auto given = std::make_shared<Given>();
  add_cache_directory(verb, *given);
  return {&verb, [given](Output& output) { return run_clear(*given, output); }};
}

}  // namespace kiln::cli
