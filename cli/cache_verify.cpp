// kiln cache verify: reads and checks every entry and every record of a cache.
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

  const auto checked = store.verify();
  if (!checked) return unreadable_cache(checked.error());
  auto damaged = Json::array();
  std::size_t entries = 0;
  std::size_t records = 0;
  std::uint64_t total_bytes = 0;  // of the entries, as kiln cache ls counts them
  for (const auto& info : *checked) {
    const bool is_record = !info.record_kind.empty();
    ++(is_record ? records : entries);
    if (!is_record) total_bytes += info.file_bytes;
    if (info.damage.empty()) continue;
    output.line(info.name.hex() +
                (is_record ? "  damaged " + info.record_kind + " record: " : "  damaged: ") +
                printable(info.damage));
    Json described = {
        {"key", info.name.hex()}, {"file_bytes", info.file_bytes}, {"damage", info.damage}};
    if (is_record) described["record"] = info.record_kind;
    damaged.push_back(std::move(described));
  }
  const auto count = damaged.size();
  output.line(std::to_string(entries) + " entries, " + bytes_text(total_bytes) + ", and " +
              std::to_string(records) + " records in " + store.directory().string() + ": " +
              (count == 0 ? "all good"
                          : std::to_string(count) + " damaged, made again by the next prewarm"));
  output.object({{"cache_dir", store.directory().string()},
                 {"checked", entries},
                 {"records", records},
                 {"total_bytes", total_bytes},
                 {"damaged", std::move(damaged)}});
  return count == 0 ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_cache_verify(CLI::App& cache) {
  auto& verb = add_verb(
      cache, "verify", "Check every entry and record",
      "Examples:\n"
      "  kiln cache verify\n"
      "  kiln cache verify --cache-dir /var/cache/kiln --json\n"
      "Exit codes: 0 all is good; 1 something is damaged; 2 usage; 3 the cache cannot be read.");
  const auto given = std::make_shared<Given>();
  add_cache_directory(verb, *given);
  return {&verb, [given](Output& output) { return run(*given, output); }};
}

}  // namespace kiln::cli
