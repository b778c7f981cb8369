// What is in force for one run of the command: option, then environment, then default.
//
// Threads: pure functions and values.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/exit_code.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/options.hpp"

namespace kiln::cli {

/// What the command line gave; an empty member was not given.
struct Given {
  std::optional<std::string> cache_directory{};
  std::optional<unsigned> jobs{};
  /// Each a target or a list of them with commas between.
  std::vector<std::string> architectures{};
};

struct Settings {
  RuntimeOptions runtime{};
  /// Empty: none is named.
  std::vector<std::string> architectures{};
  /// An option or KILN_CACHE_DIR names the cache directory.
  bool cache_is_named = false;
  /// Where each came from: an option ("--jobs") or a variable; empty for a default.
  OptionOrigins origins{};
  std::string architectures_origin{};
};

/// --cache-dir, --arch and --jobs, the same for every command.
void add_cache_directory(CLI::App& command, Given& given);
void add_architectures(CLI::App& command, Given& given);
void add_jobs(CLI::App& command, Given& given);

/// `given` over `environment`.
/// Errors  as options_from(); invalid_argument for an empty name in a list of targets.
Result<Settings> settings_from(const Given& given, const EnvironmentReader& environment);

/// The failure of a command that needs a cache directory and has none.
Failure no_cache_directory();

/// Why a command that writes cannot have its cache: none is named, or something else stands there.
std::optional<Failure> bad_cache_directory(const Settings& settings);

/// The failure of a command whose cache cannot be read, as Store::list() and verify() report it:
/// the machine's fault, not that of what the cache holds.
Failure unreadable_cache(const Error& error);

/// The store of a command that only reads. A directory that somebody names must be there; the
/// default one may not be yet, and then holds nothing.
std::variant<cache::Store, Failure> open_cache(const Given& given,
                                               const EnvironmentReader& environment, LogSink log);

}  // namespace kiln::cli
