// kiln doctor: what is in force here, where each setting came from, and what is wrong. It changes
// nothing on disk.
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/checks.hpp"
#include "cli/entry_facts.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/version.hpp"

namespace kiln::cli {
namespace {

std::string_view to_string(State state) {
  switch (state) {
    case State::ok:
      return "ok";
    case State::note:
      return "note";
    case State::problem:
      return "problem";
  }
  return "problem";
}

void show(const Check& check, Output& output) {
  constexpr int kStateColumns = 9;
  constexpr int kNameColumns = 18;
  const std::string indent(kStateColumns + kNameColumns, ' ');
  auto head =
      padded(std::string(to_string(check.state)), kStateColumns) + padded(check.name, kNameColumns);
  auto lines = check.lines;
  if (!lines.empty() && !check.origin.empty())
    lines.front().insert(std::min(lines.front().find('\n'), lines.front().size()),
                         " [" + check.origin + "]");
  if (!check.cure.empty()) lines.push_back("-> " + check.cure);
  for (const auto& line : lines) {
    // A message of several lines keeps them.
    std::string_view rest = line;
    for (bool more = true; more;) {
      const auto end = rest.find('\n');
      more = end != std::string_view::npos;
      output.line(head + printable(rest.substr(0, end)));
      if (more) rest.remove_prefix(end + 1);
      head = indent;
    }
  }
}

Json json_of(const Check& check) {
  Json json = {{"name", check.name}, {"state", to_string(check.state)}};
  json["origin"] = check.origin.empty() ? Json() : Json(check.origin);
  json["lines"] = check.lines;
  if (!check.cure.empty()) json["cure"] = check.cure;
  json["facts"] = check.facts;
  return json;
}

// What stands in them can be wrong by itself.
constexpr std::array<std::string_view, 8> kVariablesWithForm = {"KILN_ARCH",
                                                                "KILN_CACHE_GROUP",
                                                                "KILN_CACHE_MAX_BYTES",
                                                                "KILN_CACHE_MIN_FREE_BYTES",
                                                                "KILN_CACHE_SIGNERS",
                                                                "KILN_CACHE_USERS",
                                                                "KILN_JOBS",
                                                                "KILN_REMOTE"};

// The settings without the variables that are wrong, each of which is a problem of its own.
Result<Settings> usable_settings(const Given& given, const EnvironmentReader& environment,
                                 std::vector<Check>& checks) {
  auto settings = settings_from(given, environment);
  if (settings) return settings;
  for (const std::string_view name : kVariablesWithForm) {
    // With those that go with it: KILN_REMOTE_KEY counts where KILN_REMOTE is set.
    const EnvironmentReader alone = [&](const char* asked) {
      return std::string_view(asked).starts_with(name) ? environment(asked) : std::nullopt;
    };
    if (const auto fault = settings_from(given, alone); !fault)
      checks.push_back({.state = State::problem,
                        .name = std::string(name),
                        .lines = {fault.error().message()},
                        .origin = std::string(name)});
  }
  return settings_from(given, [&](const char* asked) -> std::optional<std::string> {
    const std::string_view name = asked;
    const bool may_be_wrong = std::find(kVariablesWithForm.begin(), kVariablesWithForm.end(),
                                        name) != kVariablesWithForm.end();
    return may_be_wrong ? std::nullopt : environment(asked);
  });
}

Outcome run_doctor(const Given& given, Output& output) {
  const auto environment = process_environment();
  std::vector<Check> checks;
  const auto settings = usable_settings(given, environment, checks);
  if (!settings) return failure_of(settings.error());

  // Only the compiler and the driver are asked of it: it gets no cache and no source directory.
  auto runtime = Runtime::open({.nvrtc = settings->runtime.nvrtc});
  if (!runtime) return failure_of(runtime.error());
  checks.push_back(check_driver(*runtime));
  checks.push_back(check_nvrtc(*settings, environment));
  const auto architectures = check_architectures(*settings, *runtime);
  if (checks.back().state != State::problem)
    checks.push_back(check_compile(
        *runtime, architectures.facts["architectures"].get<std::vector<std::string>>()));
  checks.push_back(check_toolkit(*settings, environment));
  checks.push_back(check_cache(*settings, environment));
  checks.push_back(check_read_only_caches(*settings));
  checks.push_back(check_remote(*settings));
  checks.push_back(check_jobs(*settings));
  checks.push_back(architectures);
  checks.push_back(check_source_directory(*settings));
  checks.push_back(check_environment(environment));

  output.line(padded("", 9) + padded("kiln", 18) + std::string(version()));
  auto described = Json::array();
  for (const auto& check : checks) {
    show(check, output);
    described.push_back(json_of(check));
  }
  const auto problems = std::count_if(checks.begin(), checks.end(), [](const Check& check) {
    return check.state == State::problem;
  });
  output.line(problems == 0
                  ? "ready: kiln prewarm and kiln compile work here"
                  : "not ready: " + counted(static_cast<std::uint64_t>(problems), "problem"));
  output.object({{"kiln", version()},
                 {"ready", problems == 0},
                 {"problems", problems},
                 {"checks", std::move(described)}});
  return problems == 0 ? ExitCode::done : ExitCode::environment;
}

}  // namespace

Verb add_doctor(CLI::App& kiln) {
  auto& verb = add_verb(
      kiln, "doctor", "Show what is in force here, and what is wrong",
      "Examples:\n"
      "  kiln doctor\n"
      "  kiln doctor --cache-dir /var/cache/kiln --arch sm_90a --json\n"
      "Behind each setting stands in brackets where it came from: an option, a variable or the\n"
      "default. Nothing is written to disk; the servers of KILN_REMOTE are asked. Exit codes:\n"
      "0 compiling and storing work here (no driver is needed for that); 2 usage; 3 something\n"
      "that they need is missing or broken.");
  const auto given = std::make_shared<Given>();
  add_architectures(verb, *given);
  add_cache_directory(verb, *given);
  add_read_only_caches(verb, *given);
  add_jobs(verb, *given);
  return {&verb, [given](Output& output) { return run_doctor(*given, output); }};
}

}  // namespace kiln::cli
