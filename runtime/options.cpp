#include "kiln/options.hpp"

#include <charconv>
#include <cstdlib>

namespace kiln {
namespace {

constexpr unsigned kMostJobs = 1024;

// A variable that is set but empty counts as not set.
std::string value_of(const EnvironmentReader& environment, const char* name) {
  return environment(name).value_or(std::string());
}

std::filesystem::path default_cache_directory(const EnvironmentReader& environment) {
  // The XDG rules: a relative path in these variables is invalid and ignored.
  const std::filesystem::path shared = value_of(environment, "XDG_CACHE_HOME");
  if (shared.is_absolute()) return shared / "kiln";
  const std::filesystem::path home = value_of(environment, "HOME");
  if (home.is_absolute()) return home / ".cache" / "kiln";
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

Result<RuntimeOptions> options_from(const EnvironmentReader& environment) {
  RuntimeOptions options;
  options.cache_directory = value_of(environment, "KILN_CACHE_DIR");
  if (options.cache_directory.empty())
    options.cache_directory = default_cache_directory(environment);
  options.source_directory = value_of(environment, "KILN_SOURCE_DIR");
  options.nvrtc = value_of(environment, "KILN_NVRTC");
  if (const auto jobs = value_of(environment, "KILN_JOBS"); !jobs.empty()) {
    KILN_TRY(options.jobs, jobs_from(jobs));
  }
  return options;
}

}  // namespace kiln
