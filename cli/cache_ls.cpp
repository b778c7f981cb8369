// kiln cache ls: what is in a cache. Each entry is read and checked; a damaged one is shown as such
// and is no failure, since the question was what is there.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/distinctions.hpp"
#include "cli/entry_facts.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

// Rows that are compared and written together: of a large cache the first ones come at once, and
// the marks of all are never in memory.
constexpr std::size_t kPage = 1000;

struct CacheLsArguments {
  Given given{};
  std::string sort = "name";
};

// By name, or the largest or most lately used first.
bool sort_entries(std::vector<cache::EntryInfo>& entries, const std::string& by) {
  using Info = cache::EntryInfo;
  if (by == "size")
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Info& a, const Info& b) { return a.file_bytes > b.file_bytes; });
  else if (by == "used")
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Info& a, const Info& b) { return a.used_seconds > b.used_seconds; });
  else
    return by == "name";
  return true;
}

Outcome run(const CacheLsArguments& arguments, Output& output) {
  auto opened =
      open_cache(arguments.given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);

  auto entries = Json::array();
  std::uint64_t total_bytes = 0;
  auto listed = store.list();
  if (!listed) return unreadable_cache(listed.error());
  if (!sort_entries(*listed, arguments.sort))
    return usage_failure("--sort \"" + shortened(arguments.sort) +
                         "\" is unknown; it is one of name, size and used");
  std::vector<std::string> lines;
  std::vector<MarkedRow> rows;
  const auto write_page = [&] {
    const auto apart = distinctions(rows);
    for (std::size_t i = 0; i < lines.size(); ++i) output.line(lines[i] + apart[i]);
    lines.clear();
    rows.clear();
  };
  for (const auto& info : *listed) {
    const auto found = store.look_at(info.name);
    if (!found) return unreadable_cache(found.error());
    if (!found->entry && found->damage.empty()) continue;  // deleted meanwhile
    total_bytes += info.file_bytes;
    Json described = {{"key", info.name.hex()},
                      {"file_bytes", info.file_bytes},
                      {"used", time_text(info.used_seconds)}};
    std::string columns = info.name.hex() + "  ";
    MarkedRow row;
    if (found->entry) {
      const auto facts = facts_of(*found->entry);
      described.update({{"kernel", text_fact(facts, "kernel")},
                        {"arch", text_fact(facts, "architecture")},
                        {"toolchain", text_fact(facts, "toolchain")},
                        {"constants", constants_of(found->entry->key_text())}});
      row = {text_fact(facts, "kernel") + '\n' + text_fact(facts, "architecture"),
             marks_of(found->entry->key_text())};
      columns += padded(bytes_text(info.file_bytes), -10) + "  " +
                 padded(printable(text_fact(facts, "architecture")), 8) + "  " +
                 printable(text_fact(facts, "kernel"));
    } else {
      described["damage"] = found->damage;
      columns +=
          padded(bytes_text(info.file_bytes), -10) + "  damaged: " + printable(found->damage);
    }
    lines.push_back(std::move(columns));
    rows.push_back(std::move(row));
    entries.push_back(std::move(described));
    if (rows.size() == kPage) write_page();
  }
  write_page();
  output.line(entries_text(entries.size()) + ", " + bytes_text(total_bytes) + " in " +
              printable(store.directory().string()));
  output.object({{"cache_dir", store.directory().string()},
                 {"total_bytes", total_bytes},
                 {"entries", std::move(entries)}});
  return ExitCode::done;
}

}  // namespace

Verb add_cache_ls(CLI::App& cache) {
  auto& verb = add_verb(cache, "ls", "List the kernels in a cache",
                        "Examples:\n"
                        "  kiln cache ls --sort size\n"
                        "  kiln cache ls --cache-dir /var/cache/kiln --json");
  const auto arguments = std::make_shared<CacheLsArguments>();
  auto& sort = add_option(verb, "--sort", arguments->sort, "ORDER",
                          "name, size (largest first) or used (latest first) [default name]");
  add_cache_directory(verb, arguments->given);
  return {&verb,
          [arguments](Output& output) { return run(*arguments, output); },
          {{&sort, {"name", "size", "used"}}}};
}

}  // namespace kiln::cli
