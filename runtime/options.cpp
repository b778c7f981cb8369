#include "kiln/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace kiln {
namespace {

constexpr unsigned kMostJobs = 1024;

// Reads a variable and notes its name when it holds something. One that is set but empty counts as
// not set.
std::string value_of(const EnvironmentReader& environment, const char* name, std::string& origin) {
  auto value = environment(name).value_or(std::string());
  if (!value.empty()) origin = name;
  return value;
}

std::filesystem::path cache_directory_from(const EnvironmentReader& environment,
                                           std::string& origin) {
  if (auto named = value_of(environment, "KILN_CACHE_DIR", origin); !named.empty()) return named;
  // The XDG rules: a relative path in these variables is invalid and ignored.
  const std::filesystem::path shared = value_of(environment, "XDG_CACHE_HOME", origin);
  if (shared.is_absolute()) return shared / "kiln";
  const std::filesystem::path home = value_of(environment, "HOME", origin);
  if (home.is_absolute()) return home / ".cache" / "kiln";
  origin.clear();
  return {};
}

Result<unsigned> jobs_from(const std::string& text) {
  unsigned jobs = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), jobs);
  if (error != std::errc{} || end != text.data() + text.size() || jobs > kMostJobs)
    return Error(ErrorCode::invalid_argument,
                 "KILN_JOBS is \"" + text +
                     "\": it must be a whole number from 0 (as many as the " +
                     "machine has processors) to " + std::to_string(kMostJobs));
  return jobs;
}

}  // namespace

EnvironmentReader process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    // The only getenv in the library.
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

std::vector<std::string> variables_of_process(std::string_view prefix) {
  std::vector<std::string> names;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view variable = *at;
    if (variable.starts_with(prefix)) names.emplace_back(variable.substr(0, variable.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<RuntimeOptions> options_from(const EnvironmentReader& environment, OptionOrigins* origins) {
  OptionOrigins unasked;
  auto& from = origins != nullptr ? *origins : unasked;
  from = {};
  RuntimeOptions options;
  options.cache_directory = cache_directory_from(environment, from.cache_directory);
  options.source_directory = value_of(environment, "KILN_SOURCE_DIR", from.source_directory);
  options.nvrtc = value_of(environment, "KILN_NVRTC", from.nvrtc);
  options.record_file = value_of(environment, "KILN_RECORD", from.record_file);
  if (const auto jobs = value_of(environment, "KILN_JOBS", from.jobs); !jobs.empty()) {
    KILN_TRY(options.jobs, jobs_from(jobs));
  }
  return options;
}

}  // namespace kiln
