// kiln cache verify: reads and checks every entry and every record of a cache.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

struct Arguments {
  Given given{};
  bool repair = false;
  bool quarantine = false;
};

Outcome run(const Arguments& arguments, Output& output) {
  if (arguments.quarantine && !arguments.repair)
    return usage_failure("--quarantine says how to repair; give --repair as well");
  auto opened =
      open_cache(arguments.given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& store = std::get<cache::Store>(opened);

  const auto how = arguments.quarantine ? cache::Repair::quarantine : cache::Repair::remove;
  const auto checked = arguments.repair ? store.repair(how) : store.verify();
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
                          : std::to_string(count) + " damaged, " +
                                (arguments.quarantine ? "put aside in v1/q, "
                                 : arguments.repair   ? "removed, "
                                                      : "") +
                                "made again by the next prewarm"));
  output.object({{"cache_dir", store.directory().string()},
                 {"checked", entries},
                 {"records", records},
                 {"total_bytes", total_bytes},
                 {"repaired", arguments.repair ? count : 0},
                 {"damaged", std::move(damaged)}});
  return count == 0 || arguments.repair ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_cache_verify(CLI::App& cache) {
  auto& verb = add_verb(
      cache, "verify", "Check every entry and record",
      "Examples:\n"
      "  kiln cache verify\n"
      "  kiln cache verify --cache-dir /var/cache/kiln --json\n"
      "  kiln cache verify --repair --quarantine\n"
      "Exit codes: 0 all is good, or was repaired; 1 something is damaged; 2 usage; 3 the cache\n"
      "cannot be read, or not be repaired.");
  const auto arguments = std::make_shared<Arguments>();
  add_flag(verb, "--repair", arguments->repair, "Remove what is damaged");
  add_flag(verb, "--quarantine", arguments->quarantine,
           "With --repair: keep what is damaged in v1/q of the cache");
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
