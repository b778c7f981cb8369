// The kiln command: parses the command line, runs a verb, and turns how it ends into an exit code.
// The only place that catches: CLI11 reports by exceptions, help and version included.
#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/compile_worker.hpp"
#include "kiln/version.hpp"

namespace kiln::cli {
namespace {

// Looked for before the parse, because a fault of the command line is reported in this form too.
bool wants_json(int count, const char* const* arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") return false;
    if (argument == "--json" || argument == "--json=true") return true;
  }
  return false;
}

bool is_live_terminal(const EnvironmentReader& environment) {
  return ::isatty(STDERR_FILENO) != 0 && environment("TERM") != "dumb";
}

// A stream that the caller closed would be the number of the next file that is opened, and the
// result would land in it. What stands in refuses to be used, as a closed stream does.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

ExitCode show_version(Output& output) {
  const auto environment = process_environment();
  // The one variable that counts: a wrong one of the others must not keep the versions back.
  RuntimeOptions options;
  if (const auto nvrtc = environment("KILN_NVRTC")) options.nvrtc = *nvrtc;
  Json result = {{"kiln", version()}, {"nvrtc", nullptr}, {"driver", nullptr}};
  output.line("kiln " + std::string(version()));
  if (const auto nvrtc = find_toolchain(options, environment)) {
    output.line("NVRTC " + nvrtc->version + ", " + nvrtc->library.string() + " (" +
                nvrtc->how_found + ")");
    result["nvrtc"] = {{"version", nvrtc->version},
                       {"path", nvrtc->library.string()},
                       {"how_found", nvrtc->how_found},
                       {"identity", nvrtc->identity}};
  } else {
    output.line("NVRTC not found");
  }
  const auto driver = driver_version();
  output.line(driver.empty() ? "driver not found" : "driver for CUDA " + driver);
  if (!driver.empty()) result["driver"] = driver;
  output.object(result);
  return ExitCode::done;
}

std::string verbs_of(const CLI::App& command) {
  std::string names;
  for (const auto* verb : command.get_subcommands([](const CLI::App*) { return true; }))
    names += (names.empty() ? "" : ", ") + verb->get_name();
  return names;
}

// How far into the tree of verbs the command line got, and its words.
std::pair<const CLI::App*, std::string> command_given(const CLI::App& kiln) {
  const CLI::App* command = &kiln;
  std::string name = kiln.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += ' ' + command->get_name();
  }
  return {command, name};
}

// What is wrong with the command line. CLI11 misses the verb before it minds the word that stands
// in its place, and names neither.
std::string fault_of(const CLI::App& kiln, const CLI::ParseError& error) {
  // --json is the one flag without an override, and CLI11 calls it by half its name.
  if (std::string_view(error.what()).find("flag override") != std::string_view::npos)
    return "--json takes no value";
  const auto [command, name] = command_given(kiln);
  const auto verbs = verbs_of(*command);
  if (verbs.empty() || error.get_exit_code() != static_cast<int>(CLI::ExitCodes::RequiredError))
    return error.what();
  const auto unknown = kiln.remaining(/*recurse=*/true);
  return (unknown.empty() ? "a verb is missing" : '"' + unknown.front() + "\" is unknown") +
         "; the verbs of " + name + " are " + verbs;
}

ExitCode run(CLI::App& kiln, const std::vector<Verb>& verbs, int count, char** arguments,
             Output& output) {
  try {
    kiln.parse(count, arguments);
    for (const auto& verb : verbs) {
      if (!verb.command->parsed()) continue;
      const auto outcome = verb.run(output);
      if (const auto* exit = std::get_if<ExitCode>(&outcome)) return *exit;
      const auto& failure = std::get<Failure>(outcome);
      output.failure(failure);
      return failure.exit;
    }
    return ExitCode::usage;  // not reached: a verb is required
  } catch (const CLI::CallForHelp&) {
    output.line(kiln.help());
    output.object({{"help", kiln.help()}});
    return ExitCode::done;
  } catch (const CLI::CallForVersion&) {
    return show_version(output);
  } catch (const CLI::ParseError& error) {
    output.failure(
        usage_failure(fault_of(kiln, error) + "; see " + command_given(kiln).second + " --help"));
    return ExitCode::usage;
  } catch (const std::exception& error) {
    output.failure({.code = "unexpected", .message = error.what()});
    return ExitCode::failed;
  }
}

// What belongs to the whole command and to no verb.
void set_up(CLI::App& kiln) {
  kiln.footer(
      "Examples:\n"
      "  kiln prewarm --model deepseek-v4.1-flash --tp 4 --kv nvfp4 --arch sm_90a,sm_100a\n"
      "  kiln compile scale.cu --arch sm_90a\n"
      "  kiln doctor\n"
      "  kiln cache verify --cache-dir /var/cache/kiln\n"
      "Environment: KILN_CACHE_DIR, KILN_CACHE_READONLY, KILN_ARCH, KILN_JOBS, KILN_SOURCE_DIR,\n"
      "KILN_NVRTC, KILN_RECORD, and for the cache KILN_CACHE_USERS, KILN_CACHE_GROUP,\n"
      "KILN_CACHE_SIGNERS, KILN_CACHE_MAX_BYTES, KILN_CACHE_MIN_FREE_BYTES; for the remote one\n"
      "KILN_REMOTE, KILN_REMOTE_KEY and those that cache/REMOTE.md lists; options go before it.\n"
      "Exit codes: 0 done, 1 something is missing or failed, 2 usage, 3 environment.");
  kiln.set_version_flag("--version", "")
      ->description("Show the versions of Kiln, NVRTC and driver");
  kiln.fallthrough();  // inherited: what belongs to the whole may stand after the verb
  kiln.require_subcommand(1);
}

// In the order that the help shows them in. `choices` must outlive them.
std::vector<Verb> add_verbs(CLI::App& kiln, std::vector<Choices>& choices) {
  // Without a footer of their own they would have that of the whole, with examples of other verbs.
  const auto add_group = [&](const std::string& name, const char* what) {
    auto* group = kiln.add_subcommand(name, what);
    group->footer("For examples: kiln " + name + " VERB --help");
    return group->require_subcommand(1);
  };
  auto* cache = add_group("cache", "Look at a cache, and keep it in order");
  auto* bundle = add_group("bundle", "Give entries of a cache to others, signed");
  std::vector<Verb> verbs = {add_prewarm(kiln),
                             add_compile(kiln),
                             add_explain(kiln),
                             add_bench(kiln),
                             add_plan(kiln),
                             add_doctor(kiln),
                             add_keygen(kiln),
                             add_completion(kiln, choices),
                             add_cache_ls(*cache),
                             add_cache_show(*cache),
                             add_cache_extract(*cache),
                             add_cache_verify(*cache),
                             add_cache_stat(*cache),
                             add_cache_trim(*cache),
                             add_cache_clear(*cache),
                             add_cache_gc(*cache),
                             add_cache_diff(*cache),
                             add_bundle_pack(*bundle),
                             add_bundle_unpack(*bundle),
                             add_bundle_ls(*bundle),
                             add_bundle_verify(*bundle)};
  verbs.push_back(add_push(kiln));
  verbs.push_back(add_pull(kiln));
  auto* remote = add_group("remote", "Look at the cache that a fleet shares");
  verbs.push_back(add_remote_check(*remote));
  auto* manifest = add_group("manifest", "Put recordings of runs together, or compare them");
  verbs.push_back(add_manifest_merge(*manifest));
  verbs.push_back(add_manifest_diff(*manifest));
  for (const auto& verb : verbs)
    choices.insert(choices.end(), verb.choices.begin(), verb.choices.end());
  return verbs;
}

int run_command(int count, char** arguments) {
  // What kiln prewarm starts to compile in; no verb for people.
  if (count == 2 && std::string_view(arguments[1]) == "compile-worker") return serve_compiles();
  occupy_closed_streams();
  // A reader that goes away (kiln cache ls | head) is an error value of write(), not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  Output output(wants_json(count, arguments) ? OutputForm::json : OutputForm::text,
                is_live_terminal(process_environment()));

  CLI::App kiln(
      "CUDA kernels from source strings, compiled once per key for all who share a cache.", "kiln");
  set_up(kiln);
  bool json = false;  // wants_json() has answered
  // Without an override --json=false and the like are refused; wants_json() knows what is left.
  kiln.add_flag("--json", json, "Write the result as one JSON object")->disable_flag_override();
  std::vector<Choices> choices;
  const auto verbs = add_verbs(kiln, choices);
  auto exit = run(kiln, verbs, count, arguments, output);
  if (const auto status = output.result_status(); !status) {
    output.message("kiln: " + status.error().message());
    if (exit == ExitCode::done) exit = ExitCode::failed;
  }
  return static_cast<int>(exit);
}

}  // namespace
}  // namespace kiln::cli

int main(int count, char** arguments) {
  try {
    return kiln::cli::run_command(count, arguments);
  } catch (const std::exception& error) {
    // Out of memory, most likely: all else is an error by itself.
    std::fprintf(stderr, "kiln: %s\n", error.what());
    return static_cast<int>(kiln::cli::ExitCode::failed);
  }
}
