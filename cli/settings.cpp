#include "cli/settings.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

namespace kiln::cli {
namespace {

// Appends the names in a list with commas between, each once. False when one of them is empty.
bool append_names(std::vector<std::string>& names, std::string_view list) {
  for (;;) {
    const auto comma = list.find(',');
    auto name = list.substr(0, comma);
    const auto first = name.find_first_not_of(" \t");
    if (first == std::string_view::npos) return false;
    name = name.substr(first, name.find_last_not_of(" \t") - first + 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<Settings> settings_from(const Given& given, const EnvironmentReader& environment) {
  // An option stands in for the variable that it goes before, so that both take one way from here.
  std::map<std::string, std::string, std::less<>> options;
  if (given.cache_directory) options["KILN_CACHE_DIR"] = *given.cache_directory;
  if (given.jobs) options["KILN_JOBS"] = std::to_string(*given.jobs);
  for (const auto& url : given.remotes)
    options["KILN_REMOTE"] += (options["KILN_REMOTE"].empty() ? "" : ",") + url;
  if (!given.remote_key.empty()) options["KILN_REMOTE_KEY"] = given.remote_key;
  const EnvironmentReader merged = [&](const char* name) -> std::optional<std::string> {
    if (const auto option = options.find(std::string_view(name)); option != options.end())
      return option->second;
    auto value = environment(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  };

  Settings settings;
  KILN_TRY(settings.runtime, options_from(merged, &settings.origins));
  if (given.cache_directory) settings.origins.cache_directory = "--cache-dir";
  if (given.jobs) settings.origins.jobs = "--jobs";
  if (!given.remotes.empty()) settings.origins.remote = "--remote";
  if (!given.read_only_caches.empty()) {
    settings.runtime.read_only_caches.assign(given.read_only_caches.begin(),
                                             given.read_only_caches.end());
    settings.origins.read_only_caches = "--cache-readonly";
  }
  settings.cache_is_named = merged("KILN_CACHE_DIR").has_value();
  for (const auto& list : given.architectures)
    if (!append_names(settings.architectures, list))
      return Error(ErrorCode::invalid_argument,
                   "--arch \"" + list + "\" names an empty architecture; write sm_90a,sm_100a");
  if (!given.architectures.empty()) {
    settings.architectures_origin = "--arch";
  } else if (const auto list = merged("KILN_ARCH")) {
    settings.architectures_origin = "KILN_ARCH";
    if (!append_names(settings.architectures, *list))
      return Error(ErrorCode::invalid_argument,
                   "KILN_ARCH \"" + *list + "\" names an empty architecture; write sm_90a,sm_100a");
  }
  return settings;
}

Failure no_cache_directory() {
  return {.exit = ExitCode::environment,
          .code = "no_cache_directory",
          .message =
              "there is no cache directory: none is named, and neither XDG_CACHE_HOME nor "
              "HOME says where the default one is; use --cache-dir DIR or KILN_CACHE_DIR"};
}

std::optional<Failure> bad_cache_directory(const Settings& settings) {
  const auto& directory = settings.runtime.cache_directory;
  if (directory.empty()) return no_cache_directory();
  std::error_code ignored;
  const auto type = std::filesystem::status(directory, ignored).type();
  if (type == std::filesystem::file_type::directory ||
      type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::none)
    return std::nullopt;
  return Failure{.exit = ExitCode::environment,
                 .code = "no_cache_directory",
                 .message = "the cache directory " + directory.string() +
                            " is not a directory; name another with --cache-dir or "
                            "KILN_CACHE_DIR"};
}

std::optional<Failure> bad_remote(const Settings& settings, bool sends) {
  const auto& remote = settings.runtime.remote;
  if (!remote.is_on())
    return usage_failure(
        "no remote cache is named; use --remote URL or KILN_REMOTE, such as https://host/kiln");
  if (sends && !remote.sends())
    return usage_failure(
        "what is sent to the remote cache must be signed; name the key with --secret-key FILE or "
        "KILN_REMOTE_KEY, which kiln keygen makes");
  return std::nullopt;
}

Failure unreadable_cache(const Error& error) {
  auto failure = failure_of(error);
  failure.exit = ExitCode::environment;
  return failure;
}

std::variant<cache::Store, Failure> open_cache(const Given& given,
                                               const EnvironmentReader& environment, LogSink log) {
  auto settings = settings_from(given, environment);
  if (!settings) return failure_of(settings.error());
  const auto& directory = settings->runtime.cache_directory;
  if (directory.empty()) return no_cache_directory();

  std::error_code failed;
  const auto status = std::filesystem::status(directory, failed);
  const bool absent = status.type() == std::filesystem::file_type::not_found;
  if (absent ? settings->cache_is_named : status.type() != std::filesystem::file_type::directory) {
    const std::string why = absent   ? "does not exist"
                            : failed ? "cannot be read: " + failed.message()
                                     : "is not a directory";
    return Failure{.exit = ExitCode::environment,
                   .code = "no_cache_directory",
                   .message = "the cache directory " + directory.string() + " " + why +
                              "; name another with --cache-dir or KILN_CACHE_DIR"};
  }
  auto store = cache::Store::open({.directory = directory,
                                   .log = std::move(log),
                                   .trust = settings->runtime.cache_trust,
                                   .limits = settings->runtime.cache_limits});
  if (!store) return failure_of(store.error());
  return *std::move(store);
}

}  // namespace kiln::cli
