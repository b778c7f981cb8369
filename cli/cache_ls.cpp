// kiln cache ls: what is in a cache. Each entry is read and checked; a damaged one is shown as such
// and is no failure, since the question was what is there.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/entry_facts.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

Outcome run(const Given& given, Output& output) {
  auto opened = open_cache(given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);

  auto entries = Json::array();
  std::uint64_t total_bytes = 0;
  const auto listed = store.list();
  if (!listed) return unreadable_cache(listed.error());
  for (const auto& info : *listed) {
    const auto found = store.look_at(info.name);
    if (!found) return unreadable_cache(found.error());
    if (!found->entry && found->damage.empty()) continue;  // deleted meanwhile
    total_bytes += info.file_bytes;
    Json described = {{"key", info.name.hex()}, {"file_bytes", info.file_bytes}};
    std::string columns = info.name.hex() + "  ";
    if (found->entry) {
      const auto facts = facts_of(*found->entry);
      described.update({{"kernel", text_fact(facts, "kernel")},
                        {"arch", text_fact(facts, "architecture")},
                        {"toolchain", text_fact(facts, "toolchain")}});
      columns += padded(bytes_text(info.file_bytes), -10) + "  " +
                 padded(printable(text_fact(facts, "architecture")), 8) + "  " +
                 printable(text_fact(facts, "kernel"));
    } else {
      described["damage"] = found->damage;
      columns +=
          padded(bytes_text(info.file_bytes), -10) + "  damaged: " + printable(found->damage);
    }
    output.line(columns);
    entries.push_back(std::move(described));
  }
  output.line(std::to_string(entries.size()) + (entries.size() == 1 ? " entry, " : " entries, ") +
              bytes_text(total_bytes) + " in " + store.directory().string());
  output.object({{"cache_dir", store.directory().string()},
                 {"total_bytes", total_bytes},
                 {"entries", std::move(entries)}});
  return ExitCode::done;
}

}  // namespace

Verb add_cache_ls(CLI::App& cache) {
  auto& verb = add_verb(cache, "ls", "List the kernels in a cache",
                        "Examples:\n"
                        "  kiln cache ls\n"
                        "  kiln cache ls --cache-dir /var/cache/kiln --json");
  const auto given = std::make_shared<Given>();
  add_cache_directory(verb, *given);
  return {&verb, [given](Output& output) { return run(*given, output); }};
}

}  // namespace kiln::cli
