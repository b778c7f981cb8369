// kiln cache verify: reads and checks every entry of a cache.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

Outcome run(const Given& given, Output& output) {
  auto opened = open_cache(given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);

  const auto entries = store.verify();
  auto damaged = Json::array();
  std::uint64_t total_bytes = 0;
  for (const auto& entry : entries) {
    total_bytes += entry.file_bytes;
    if (entry.damage.empty()) continue;
    output.line(entry.name.hex() + "  damaged: " + printable(entry.damage));
    damaged.push_back(
        {{"key", entry.name.hex()}, {"file_bytes", entry.file_bytes}, {"damage", entry.damage}});
  }
  const auto count = damaged.size();
  output.line(std::to_string(entries.size()) + " entries, " + bytes_text(total_bytes) + " in " +
              store.directory().string() + ": " +
              (count == 0 ? "all good"
                          : std::to_string(count) + " damaged, made again by the next prewarm"));
  output.object({{"cache_dir", store.directory().string()},
                 {"checked", entries.size()},
                 {"total_bytes", total_bytes},
                 {"damaged", std::move(damaged)}});
  return count == 0 ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_cache_verify(CLI::App& cache) {
  auto* command = cache.add_subcommand("verify", "Check every entry; exit 1 when one is damaged");
  command->footer(
      "Examples:\n"
      "  kiln cache verify\n"
      "  kiln cache verify --cache-dir /var/cache/kiln --json");
  const auto given = std::make_shared<Given>();
  add_cache_directory(*command, *given);
  return {command, [given](Output& output) { return run(*given, output); }};
}

}  // namespace kiln::cli
