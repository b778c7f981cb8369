// kiln cache gc: removes what killed writers left behind.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

Outcome run_gc(const Given& given, Output& output) {
  auto opened = open_cache(given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& store = std::get<cache::Store>(opened);
  const auto removed = store.collect_garbage();
  if (!removed) return unreadable_cache(removed.error());
  output.line(counted(*removed, "temporary file") + " removed from " +
              printable(store.directory().string()));
  output.object({{"cache_dir", store.directory().string()}, {"removed", *removed}});
  return ExitCode::done;
}

}  // namespace

Verb add_cache_gc(CLI::App& cache) {
  auto& verb = add_verb(
      cache, "gc", "Remove what killed processes left behind",
      "Examples:\n"
      "  kiln cache gc\n"
      "Temporary files that are older than an hour. There are none where the file system knows\n"
      "files without a name, and publishing sweeps as well; this looks everywhere at once.");
  const auto given = std::make_shared<Given>();
  add_cache_directory(verb, *given);
  return {&verb, [given](Output& output) { return run_gc(*given, output); }};
}

}  // namespace kiln::cli
