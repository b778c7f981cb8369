#include "cli/rebuild_sample.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "cli/file_input.hpp"
#include "kiln/kernels/kernels.hpp"
#include "kiln/key_text.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {
namespace {

struct Recipe {
  KernelSpec spec{};
  std::string architecture{};
};

// A key text says all that a compile was handed, but for the text of its files.
Recipe recipe_of(std::string_view key_text) {
  Recipe recipe;
  for (auto& [label, value] : key_text_fields(key_text)) {
    if (label == "kernel") recipe.spec.name = value;
    if (label == "entry") recipe.spec.entry = value;
    if (label == "name-expression") recipe.spec.name_expression = value;
    if (label == "architecture") recipe.architecture = value;
    if (label == "builtins" && value == "minimal") recipe.spec.builtins = Builtins::minimal;
    if (label == "option") recipe.spec.options.push_back(value);
    if (label != "field") continue;
    const auto type = value.find(' ') + 1;
    const auto number = value.find(' ', type) + 1;
    if (type != 0 && number != 0)
      recipe.spec.key.push_back(
          {value.substr(0, type - 1), value.substr(type, number - 1 - type), value.substr(number)});
  }
  return recipe;
}

std::optional<std::string> read_source(const std::filesystem::path& directory,
                                       const std::string& name) {
  std::error_code ignored;
  const auto path = directory / name;
  if (directory.empty() || !std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  auto text = read_whole(path);
  if (!text) return std::nullopt;
  return *std::move(text);
}

// Adds the sources of an entry that are not built in. Why not, or nothing.
std::string add_sources(Runtime& runtime, const std::vector<KeyTextFile>& files,
                        const std::filesystem::path& directory) {
  const auto& embedded = kernels::embedded_sources();
  for (const auto& file : files) {
    if (file.on_disk || file.name.starts_with("jit/")) continue;
    if (std::any_of(embedded.begin(), embedded.end(),
                    [&](const auto& source) { return source.name == file.name; }))
      continue;
    const auto text = read_source(directory, file.name);
    if (!text)
      return "its source " + file.name + " is neither built in nor in " +
             (directory.empty() ? "KILN_SOURCE_DIR, which is not set" : directory.string());
    if (auto status = runtime.add_source(file.name, *text); !status)
      return status.error().message();
  }
  return {};
}

// Empty when the entry was built again and is the same.
std::string rebuild(Runtime& runtime, const cache::Entry& entry, const cache::Digest& name,
                    const std::filesystem::path& directory, bool& compared) {
  const auto files = key_text_files(entry.key_text());
  if (files.empty()) return "its key names no source";
  if (auto why = add_sources(runtime, files, directory); !why.empty()) return why;
  auto recipe = recipe_of(entry.key_text());
  recipe.spec.source = files.front().name;
  const auto id = runtime.add(recipe.spec);
  if (!id) return id.error().message();
  const auto artifact = runtime.artifact(*id, recipe.architecture);
  if (!artifact) return artifact.error().message();
  if (artifact->key != name)
    return "what is here gives another key: its sources, headers or compiler are others";
  compared = true;
  const auto payload = entry.payload();
  const bool same = std::equal(payload.begin(), payload.end(), artifact->cubin,
                               artifact->cubin + artifact->cubin_bytes);
  return same ? std::string() : "its code differs from a fresh compile";
}

}  // namespace

std::variant<RebuildReport, Failure> rebuild_sample(const cache::Store& store,
                                                    std::vector<cache::EntryInfo> entries,
                                                    std::size_t count, const Settings& settings) {
  auto options = settings.runtime;
  options.cache_directory.clear();
  options.read_only_caches.clear();
  const auto directory = std::exchange(options.source_directory, {});
  auto runtime = Runtime::open(std::move(options));
  if (!runtime) return failure_of(runtime.error());
  if (auto status = kernels::add_sources(*runtime); !status) return failure_of(status.error());

  std::shuffle(entries.begin(), entries.end(), std::mt19937(std::random_device{}()));
  RebuildReport report;
  for (const auto& info : entries) {
    if (report.same + report.different.size() + report.skipped.size() == count) break;
    const auto entry = store.read(info.name);
    if (!entry) continue;  // deleted meanwhile
    bool compared = false;
    auto why = rebuild(*runtime, *entry, info.name, directory, compared);
    if (why.empty())
      ++report.same;
    else
      (compared ? report.different : report.skipped).push_back({info.name, std::move(why)});
  }
  return report;
}

}  // namespace kiln::cli
