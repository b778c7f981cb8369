// What is in force for one run of the command: option, then environment, then default.
//
// Threads: pure functions and values.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/exit_code.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/options.hpp"

namespace kiln::cli {

/// How long the remote cache may take to get what was made.
constexpr std::chrono::minutes kLongestUpload{10};

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

/// `given` over `environment`.
/// Errors  as options_from(); invalid_argument for an empty name in a list of architectures.
Result<Settings> settings_from(const Given& given, const EnvironmentReader& environment);

/// The failure of a command that needs a cache directory and has none.
Failure no_cache_directory();

/// Why a command that writes cannot have its cache: none is named, or something else stands there.
std::optional<Failure> bad_cache_directory(const Settings& settings);

/// Why a command that needs a remote cache cannot have it: none is named; or, where it `sends`, no
/// key to sign with.
std::optional<Failure> bad_remote(const Settings& settings, bool sends);

/// The failure of a command whose cache cannot be read, as Store::list() and verify() report it:
/// the machine's fault, not that of what the cache holds.
Failure unreadable_cache(const Error& error);

/// The store of a command that only reads. A directory that somebody names must be there; the
/// default one may not be yet, and then holds nothing.
std::variant<cache::Store, Failure> open_cache(const Given& given,
                                               const EnvironmentReader& environment, LogSink log);

}  // namespace kiln::cli
