// kiln prewarm: compiles what a manifest lists into a cache; needs neither a GPU nor a driver.
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "cli/architectures.hpp"
#include "cli/file_output.hpp"
#include "cli/manifest_request.hpp"
#include "cli/prewarm_report.hpp"
#include "cli/progress_bar.hpp"
#include "cli/settings.hpp"
#include "cli/stop_signal.hpp"
#include "cli/verbs.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {
namespace {

// In seconds; 0: none.
struct Limits {
  double whole = 0;
  double compile = 0;
};

struct PrewarmArguments {
  Given given{};
  ManifestArguments manifest{};
  bool dry_run = false;
  Limits limits{};
  std::string trace_file{};
  std::string html_file{};
  bool push = false;
};

std::chrono::milliseconds milliseconds_in(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

/// A kernel, by the index of its id, and its architecture.
using Target = std::pair<std::uint32_t, std::string>;

/// A report that goes to a file.
struct FileReport {
  OutputFile file;
  std::string (*text_of)(const WarmupReport& report);
};

/// Opens those that are asked for, so that nothing is compiled for a report that has no place.
std::variant<std::vector<FileReport>, Failure> open_reports(const PrewarmArguments& arguments) {
  const auto& given_key = arguments.given.remote_key;
  std::vector<InputFile> others = {
      {"--manifest", arguments.manifest.manifest},
      given_key.empty()
          ? InputFile{"KILN_REMOTE_KEY", process_environment()("KILN_REMOTE_KEY").value_or("")}
          : InputFile{"--secret-key", given_key}};
  std::vector<FileReport> reports;
  if (!arguments.trace_file.empty() && arguments.trace_file == arguments.html_file)
    return usage_failure("--trace and --html both name " + arguments.trace_file +
                         "; name two files");
  for (const auto& [option, path, text_of] :
       {std::tuple("--trace", &arguments.trace_file, &to_trace),
        std::tuple("--html", &arguments.html_file, &to_html)}) {
    if (path->empty()) continue;
    if (auto failure = output_is_input(option, *path, others)) return *std::move(failure);
    others.push_back({option, *path});
    auto opened = OutputFile::open(*path, option);
    if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
    reports.push_back({std::get<OutputFile>(std::move(opened)), text_of});
  }
  return reports;
}

/// `found` gets what was there already.
Outcome warm(Runtime& runtime, const std::vector<std::string>& architectures,
             const PrewarmArguments& arguments, const StopSignal& stop, const PrewarmReport& report,
             std::vector<FileReport>& files, std::set<Target>& found, Output& output) {
  Result<WarmupReport> warmed = [&] {
    ProgressBar bar(output);
    return runtime.warmup({.architectures = architectures,
                           .time_limit = milliseconds_in(arguments.limits.whole),
                           .cancel = stop.token(),
                           .progress = [&](const Progress& progress) {
                             bar.update(progress);
                             if (progress.latest == nullptr) return;
                             const auto& latest = *progress.latest;
                             report.step(latest);
                             if (latest.status && latest.origin != Origin::compiled &&
                                 latest.origin != Origin::remote)
                               found.emplace(latest.id.index, latest.architecture);
                           }});
  }();
  if (!warmed) return failure_of(warmed.error());
  auto exit = report.finish(*warmed);
  // One that cannot be written takes no other with it.
  for (auto& [file, text_of] : files)
    if (const auto failure = file.write(text_of(*warmed), stop.token())) {
      output.message("kiln: " + failure->message);
      if (exit == ExitCode::done) exit = failure->exit;
    }
  return exit;
}

/// Sends what was found here; false when some could not be.
bool send(Runtime& runtime, const std::set<Target>& found, const std::stop_token& stop,
          Output& output) {
  bool all = true;
  for (const auto& [index, architecture] : found) {
    if (stop.stop_requested()) return false;
    if (const auto status = runtime.send({index}, architecture); !status) {
      output.message("kiln: " + status.error().message());
      all = false;
    }
  }
  return all;
}

/// Waits for what is on its way. Only who `asked` to push fails when it does not arrive.
Outcome finish_sending(Runtime& runtime, bool asked, bool all_sent, const std::stop_token& stop,
                       Outcome warmed, Output& output) {
  const auto flushed = runtime.flush(kLongestUpload, stop);
  const auto counters = runtime.cache_counters().remote.value_or(cache::RemoteCounters{});
  output.message("remote cache: " + counted(counters.hits, "hit") + ", " +
                 std::to_string(counters.uploaded) + " sent");
  if (!flushed) output.message("kiln: " + flushed.error().message());
  if (!asked || (flushed && all_sent)) return warmed;
  const auto* exit = std::get_if<ExitCode>(&warmed);
  return exit != nullptr && *exit == ExitCode::done ? Outcome(ExitCode::failed) : warmed;
}

Outcome look_up(ManifestRequest& request, const std::vector<std::string>& architectures,
                const PrewarmReport& report) {
  auto& [manifest, runtime, ids, titles] = request;
  std::vector<PlannedKernel> planned;
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (const auto& architecture : architectures) {
      auto found = runtime.look_up(ids[i], architecture);
      if (!found) return failure_of(found.error());
      planned.push_back({manifest.kernels[i].name, titles[i], architecture, *std::move(found)});
    }
  report.planned(planned);
  return ExitCode::done;
}

/// The file of this program, to start it again: as it was started where there is no /proc.
std::string own_file() {
  std::string link = "/proc/self/exe";
  if (::access(link.c_str(), X_OK) == 0) return link;
  const auto* const name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  if (name == nullptr) return link;
  std::error_code failed;
  const auto path = std::filesystem::absolute(name, failed);
  return failed ? std::string(name) : path.string();
}

Outcome run(const PrewarmArguments& arguments, Output& output) {
  auto settings = settings_from(arguments.given, process_environment());
  if (!settings) return failure_of(settings.error());
  if (arguments.push)
    if (auto failure = bad_remote(*settings, /*sends=*/true)) return *std::move(failure);
  // Before any thread is there.
  const StopSignal stop;
  settings->runtime.worker_command = {own_file(), "compile-worker"};
  settings->runtime.compile_limit = milliseconds_in(arguments.limits.compile);
  auto opened = open_manifest(arguments.manifest, *settings, output);
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& request = std::get<ManifestRequest>(opened);
  auto& runtime = request.runtime;
  const auto architectures = architectures_of(*settings, runtime);
  if (const auto* failure = std::get_if<Failure>(&architectures)) return *failure;
  const auto& names = std::get<std::vector<std::string>>(architectures);

  // Absolute, as the store takes it. Where that fails, the runtime has refused or warned already.
  std::error_code failed;
  auto directory = std::filesystem::absolute(settings->runtime.cache_directory, failed);
  if (failed) directory = settings->runtime.cache_directory;
  const PrewarmReport report(request, std::move(directory), output);
  if (arguments.dry_run) {
    auto planned = look_up(request, names, report);
    if (std::holds_alternative<ExitCode>(planned)) warn_of_unasked(*settings, output);
    return planned;
  }
  auto files = open_reports(arguments);
  if (auto* failure = std::get_if<Failure>(&files)) return std::move(*failure);
  std::set<Target> found;
  auto warmed = warm(runtime, names, arguments, stop, report,
                     std::get<std::vector<FileReport>>(files), found, output);
  if (std::holds_alternative<ExitCode>(warmed)) warn_of_unasked(*settings, output);
  if (!settings->runtime.remote.is_on() || !settings->runtime.remote.sends()) return warmed;
  // What was compiled is on its way already; what was found may not be there yet.
  const bool all_sent = !arguments.push || send(runtime, found, stop.token(), output);
  return finish_sending(runtime, arguments.push, all_sent, stop.token(), std::move(warmed), output);
}

}  // namespace

Verb add_prewarm(CLI::App& kiln) {
  auto& verb = add_verb(
      kiln, "prewarm", "Compile a model's kernels into a cache; needs no GPU",
      "Examples:\n"
      "  kiln prewarm --model deepseek-v4.1-flash --tp 4 --kv nvfp4 --arch sm_90a,sm_100a\n"
      "  kiln prewarm --manifest kernels.json --arch sm_90a --cache-dir /var/cache/kiln -j 8\n"
      "  kiln prewarm --model deepseek-v4.1-flash --arch sm_90a --dry-run --json\n"
      "  kiln prewarm --manifest recorded.json --arch sm_90a,sm_100a --html prewarm.html\n"
      "  kiln prewarm --manifest kernels.json --arch sm_90a --remote https://host/kiln --push\n"
      "Each compile runs in a process of its own, and SIGINT or SIGTERM ends it within two "
      "seconds.\n"
      "Exit codes: 0 all is in the cache; 1 a kernel failed or could not be stored; 2 usage;\n"
      "3 no NVRTC and something to compile, or no cache directory. A dry run is 0 whatever is\n"
      "missing, and 3 when it can make no key: without NVRTC the cache must know a toolchain.");
  const auto arguments = std::make_shared<PrewarmArguments>();
  auto& given = arguments->given;
  auto choices = add_manifest_options(verb, arguments->manifest);
  add_architectures(verb, given);
  add_cache_directory(verb, given);
  add_read_only_caches(verb, given);
  add_jobs(verb, given);
  add_remote(verb, given);
  add_remote_key(verb, given);
  add_flag(verb, "--push", arguments->push,
           "Send all of it to the remote cache, also what was there already");
  add_seconds(verb, "--time-limit", arguments->limits.whole,
              "Stop after this time; what is finished is kept");
  add_seconds(verb, "--compile-limit", arguments->limits.compile,
              "Give a kernel up that takes longer to compile");
  add_option(verb, "--trace", arguments->trace_file, "FILE",
             "Write a timeline for chrome://tracing or Perfetto");
  add_option(verb, "--html", arguments->html_file, "FILE", "Write a page with a timeline");
  add_flag(verb, "--dry-run", arguments->dry_run,
           "Compile and write nothing; show which keys are in the cache");
  return {&verb, [arguments](Output& output) { return run(*arguments, output); },
          std::move(choices)};
}

}  // namespace kiln::cli
