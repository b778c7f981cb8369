// kiln cache trim: removes what was used longest ago.
#include <charconv>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cli/entry_facts.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

struct CacheTrimArguments {
  Given given{};
  std::optional<std::string> max_bytes{};
  std::optional<std::string> older_than{};
  bool dry_run = false;
};

// A whole number and s, m, h or d; seconds without.
std::optional<std::chrono::seconds> age_from(std::string_view text) {
  std::int64_t unit = 1;
  if (!text.empty()) {
    constexpr std::string_view kUnits = "smhd";
    constexpr std::int64_t kSeconds[] = {1, 60, 3600, 86'400};
    if (const auto at = kUnits.find(text.back()); at != std::string_view::npos) {
      unit = kSeconds[at];
      text.remove_suffix(1);
    }
  }
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (error != std::errc{} || end != text.data() + text.size() || number < 0 || number > kMost)
    return std::nullopt;
  return std::chrono::seconds(number * unit);
}

Outcome run(const CacheTrimArguments& arguments, Output& output) {
  cache::TrimRequest request{.dry_run = arguments.dry_run};
  if (arguments.max_bytes) {
    request.max_bytes = bytes_from(*arguments.max_bytes);
    if (!request.max_bytes)
      return usage_failure("--max-bytes \"" + shortened(*arguments.max_bytes) +
                           "\" is no number of bytes, such as 512M or 8G");
  }
  if (arguments.older_than) {
    request.older_than = age_from(*arguments.older_than);
    if (!request.older_than)
      return usage_failure("--older-than \"" + shortened(*arguments.older_than) +
                           "\" is no span of time, such as 90m, 36h or 30d");
  }
  const auto environment = process_environment();
  const auto settings = settings_from(arguments.given, environment);
  if (!settings) return failure_of(settings.error());
  if (!request.max_bytes && !request.older_than) {
    request.max_bytes = settings->runtime.cache_limits.max_bytes;
    if (*request.max_bytes == 0)
      return usage_failure("the cache has no limit; give --max-bytes or --older-than");
  }
  auto opened = open_cache(arguments.given, environment, output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& store = std::get<cache::Store>(opened);
  const auto report = store.trim(request);
  if (!report) return unreadable_cache(report.error());

  auto removed = Json::array();
  std::uint64_t bytes = 0;
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  for (const auto& info : report->removed) {
    bytes += info.file_bytes;
    output.line(info.name.hex() + "  " + padded(bytes_text(info.file_bytes), -10) + "  used " +
                age_text(now - info.used_seconds) + " ago");
    removed.push_back({{"key", info.name.hex()},
                       {"file_bytes", info.file_bytes},
                       {"used", time_text(info.used_seconds)}});
  }
  output.line(
      entries_text(removed.size()) + ", " + bytes_text(bytes) +
      (arguments.dry_run ? ", would be removed from " : ", removed from ") +
      printable(store.directory().string()) + "; " + std::to_string(report->left.entries) + ", " +
      bytes_text(report->left.bytes) + (arguments.dry_run ? ", would be left" : ", are left") +
      (report->in_use != 0 ? "; " + std::to_string(report->in_use) + " are being made" : ""));
  output.object({{"cache_dir", store.directory().string()},
                 {"dry_run", arguments.dry_run},
                 {"removed_bytes", bytes},
                 {"left", {{"count", report->left.entries}, {"bytes", report->left.bytes}}},
                 {"in_use", report->in_use},
                 {"removed", std::move(removed)}});
  return ExitCode::done;
}

}  // namespace

Verb add_cache_trim(CLI::App& cache) {
  auto& verb = add_verb(cache, "trim", "Remove what was used longest ago",
                        "Examples:\n"
                        "  kiln cache trim --older-than 30d\n"
                        "  kiln cache trim --max-bytes 512M --dry-run\n"
                        "A use is noted at most once an hour. What is being made at this moment\n"
                        "stays. Without either option the limit in force is kept.");
  const auto arguments = std::make_shared<CacheTrimArguments>();
  // An empty value, as of a shell variable that is not set, is no option left out.
  const auto into = [](std::optional<std::string>& value) {
    return [&value](const std::string& given) { value = given; };
  };
  add_option(verb, "--max-bytes", into(arguments->max_bytes), "BYTES",
             "What may be left, with K, M, G or T for powers of 1024 [KILN_CACHE_MAX_BYTES]");
  add_option(verb, "--older-than", into(arguments->older_than), "TIME",
             "Whatever was not used for so long: 90m, 36h, 30d; seconds without a unit");
  add_flag(verb, "--dry-run", arguments->dry_run, "Remove nothing; show what would be");
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
