// kiln cache verify: reads and checks every entry and every record of a cache.
#include <charconv>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/rebuild_sample.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

struct CacheVerifyArguments {
  Given given{};
  bool repair = false;
  bool quarantine = false;
  std::string rebuild{};
};

std::optional<std::size_t> count_from(const std::string& text) {
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size() || count == 0) return std::nullopt;
  return count;
}

// Shows what came of building some entries again; whether none differs.
std::variant<Json, Failure> rebuild(const cache::Store& store,
                                    const std::vector<cache::EntryInfo>& checked, std::size_t count,
                                    const Settings& settings, Output& output) {
  std::vector<cache::EntryInfo> entries;
  for (const auto& info : checked)
    if (info.damage.empty() && info.record_kind.empty()) entries.push_back(info);
  auto done = rebuild_sample(store, std::move(entries), count, settings);
  if (auto* failure = std::get_if<Failure>(&done)) return std::move(*failure);
  const auto& report = std::get<RebuildReport>(done);
  auto different = Json::array();
  auto skipped = Json::array();
  for (const auto& entry : report.different) {
    output.line(entry.key.hex() + "  rebuilt: " + printable(entry.why));
    different.push_back({{"key", entry.key.hex()}, {"why", entry.why}});
  }
  for (const auto& entry : report.skipped) {
    output.line(entry.key.hex() + "  not rebuilt: " + printable(entry.why));
    skipped.push_back({{"key", entry.key.hex()}, {"why", entry.why}});
  }
  output.line(std::to_string(report.same) + " rebuilt alike, " +
              std::to_string(report.different.size()) + " differ, " +
              std::to_string(report.skipped.size()) + " could not be rebuilt");
  return Json{
      {"same", report.same}, {"different", std::move(different)}, {"skipped", std::move(skipped)}};
}

Outcome run(const CacheVerifyArguments& arguments, Output& output) {
  if (arguments.quarantine && !arguments.repair)
    return usage_failure("--quarantine says how to repair; give --repair as well");
  const auto sample = count_from(arguments.rebuild);
  if (!arguments.rebuild.empty() && !sample)
    return usage_failure("--rebuild-sample \"" + shortened(arguments.rebuild) +
                         "\" is no number of entries, such as 5");
  const auto environment = process_environment();
  auto settings = settings_from(arguments.given, environment);
  if (!settings) return failure_of(settings.error());
  settings->runtime.log = output.log_sink(LogLevel::warning);
  auto opened = open_cache(arguments.given, environment, output.log_sink(LogLevel::warning));
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
  output.line(entries_text(entries) + ", " + bytes_text(total_bytes) + ", and " +
              counted(records, "record") + " in " + printable(store.directory().string()) + ": " +
              (count == 0 ? "all good"
                          : std::to_string(count) + " damaged, " +
                                (arguments.quarantine ? "put aside in v1/q, "
                                 : arguments.repair   ? "removed, "
                                                      : "") +
                                "made again by the next prewarm"));
  Json rebuilt;
  if (sample) {
    auto done = rebuild(store, *checked, *sample, *settings, output);
    if (auto* failure = std::get_if<Failure>(&done)) return std::move(*failure);
    rebuilt = std::get<Json>(std::move(done));
  }
  const bool all_alike = !sample || rebuilt["different"].empty();
  Json result = {{"cache_dir", store.directory().string()},
                 {"checked", entries},
                 {"records", records},
                 {"total_bytes", total_bytes},
                 {"repaired", arguments.repair ? count : 0},
                 {"damaged", std::move(damaged)}};
  if (sample) result["rebuilt"] = std::move(rebuilt);
  output.object(result);
  return all_alike && (count == 0 || arguments.repair) ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_cache_verify(CLI::App& cache) {
  auto& verb = add_verb(
      cache, "verify", "Check every entry and record",
      "Examples:\n"
      "  kiln cache verify\n"
      "  kiln cache verify --cache-dir /var/cache/kiln --json\n"
      "  kiln cache verify --repair --quarantine\n"
      "  kiln cache verify --rebuild-sample 20\n"
      "Exit codes: 0 all is good, or was repaired; 1 something is damaged, or differs from what a\n"
      "compile gives; 2 usage; 3 the cache cannot be read, or not be repaired.");
  const auto arguments = std::make_shared<CacheVerifyArguments>();
  add_flag(verb, "--repair", arguments->repair, "Remove what is damaged");
  add_flag(verb, "--quarantine", arguments->quarantine,
           "With --repair: keep what is damaged in v1/q of the cache");
  add_option(verb, "--rebuild-sample", arguments->rebuild, "N",
             "Compile N entries again, chosen at random, and compare their code;\n"
             "sources that are not built in are looked for in KILN_SOURCE_DIR");
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
