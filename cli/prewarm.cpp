// kiln prewarm: compiles what a manifest lists into a cache; needs neither a GPU nor a driver.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "cli/architectures.hpp"
#include "cli/file_output.hpp"
#include "cli/prewarm_report.hpp"
#include "cli/progress_bar.hpp"
#include "cli/recording_file.hpp"
#include "cli/settings.hpp"
#include "cli/stop_signal.hpp"
#include "cli/verbs.hpp"
#include "kiln/kernels/kernels.hpp"
#include "kiln/kernels/manifest.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {
namespace {

// In seconds; 0: none.
struct Limits {
  double whole = 0;
  double compile = 0;
};

struct Arguments {
  Given given{};
  std::string model{};
  std::string manifest{};
  kernels::ManifestParameters parameters{};
  bool dry_run = false;
  Limits limits{};
  std::string trace_file{};
  std::string html_file{};
};

std::string known_models() {
  std::string names;
  for (const auto& name : kernels::model_names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

Result<kernels::Manifest> read_manifest(const Arguments& arguments) {
  if (!arguments.manifest.empty())
    return kernels::read_manifest_file(arguments.manifest, arguments.parameters);
  if (!arguments.model.empty())
    return kernels::model_manifest(arguments.model, arguments.parameters);
  return Error(ErrorCode::invalid_argument, "nothing to compile is named: use --model (" +
                                                known_models() + ") or --manifest FILE");
}

std::chrono::milliseconds milliseconds_in(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

Outcome warm(Runtime& runtime, const std::vector<std::string>& architectures,
             const Arguments& arguments, const StopSignal& stop, const PrewarmReport& report,
             Output& output) {
  Result<WarmupReport> warmed = [&] {
    ProgressBar bar(output);
    return runtime.warmup({.architectures = architectures,
                           .time_limit = milliseconds_in(arguments.limits.whole),
                           .cancel = stop.token(),
                           .progress = [&](const Progress& progress) {
                             bar.update(progress);
                             if (progress.latest != nullptr) report.step(*progress.latest);
                           }});
  }();
  if (!warmed) return failure_of(warmed.error());
  if (!arguments.trace_file.empty())
    if (auto failure = write_output(arguments.trace_file, to_trace(*warmed)))
      return *std::move(failure);
  if (!arguments.html_file.empty())
    if (auto failure = write_output(arguments.html_file, to_html(*warmed)))
      return *std::move(failure);
  return report.finish(*warmed);
}

// A recording stands for the run that it was made of: its own sources, and not the ones in here.
Status add_recorded(Runtime& runtime, const Recording& recording) {
  for (const auto& [name, text] : recording.sources)
    if (auto status = runtime.add_source(name, text); !status) return status;
  return {};
}

kernels::Manifest manifest_of(const Recording& recording, const std::string& file) {
  kernels::Manifest manifest{.model = file};
  for (const auto& kernel : recording.kernels) manifest.kernels.push_back(kernel.spec);
  return manifest;
}

std::vector<std::string> architectures_in(const Recording& recording) {
  std::vector<std::string> names;
  for (const auto& kernel : recording.kernels)
    for (const auto& name : kernel.architectures)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

Outcome look_up(Runtime& runtime, const std::vector<KernelId>& ids,
                const std::vector<KernelSpec>& specs, const std::vector<std::string>& architectures,
                const PrewarmReport& report) {
  std::vector<PlannedKernel> planned;
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (const auto& architecture : architectures) {
      auto found = runtime.look_up(ids[i], architecture);
      if (!found) return failure_of(found.error());
      planned.push_back({specs[i].name, architecture, *std::move(found)});
    }
  report.planned(planned);
  return ExitCode::done;
}

Outcome run(const Arguments& arguments, Output& output) {
  auto settings = settings_from(arguments.given, process_environment());
  if (!settings) return failure_of(settings.error());
  std::optional<Recording> recording;
  if (!arguments.manifest.empty() && holds_recording(arguments.manifest)) {
    auto read = read_recording_file(arguments.manifest);
    if (!read) return failure_of(read.error());
    if (!arguments.parameters.empty())
      return usage_failure(arguments.manifest + " is a recording, which has no parameters");
    if (settings->architectures.empty()) settings->architectures = architectures_in(*read);
    recording = *std::move(read);
  }
  const auto manifest = recording
                            ? Result<kernels::Manifest>(manifest_of(*recording, arguments.manifest))
                            : read_manifest(arguments);
  if (!manifest) return failure_of(manifest.error());
  if (auto failure = bad_cache_directory(*settings)) return *std::move(failure);

  // Before any thread is there.
  const StopSignal stop;
  settings->runtime.log = output.log_sink(LogLevel::warning);
  settings->runtime.worker_command = {"/proc/self/exe", "compile-worker"};
  settings->runtime.compile_limit = milliseconds_in(arguments.limits.compile);
  settings->runtime.record_file.clear();  // compiling ahead is no run
  auto runtime = Runtime::open(settings->runtime);
  if (!runtime) return failure_of(runtime.error());
  if (auto status = recording ? add_recorded(*runtime, *recording) : kernels::add_sources(*runtime);
      !status)
    return failure_of(status.error());
  std::vector<KernelId> ids;
  for (const auto& spec : manifest->kernels) {
    const auto id = runtime->add(spec);
    if (!id) return failure_of(id.error());
    ids.push_back(*id);
  }
  if (ids.empty())
    output.message("warning: the manifest of " + manifest->model +
                   " needs no kernel with these parameters: there is nothing to compile");
  const auto architectures = architectures_of(*settings, *runtime);
  if (const auto* failure = std::get_if<Failure>(&architectures)) return *failure;
  const auto& names = std::get<std::vector<std::string>>(architectures);

  // Absolute, as the store takes it. Where that fails, the runtime has refused or warned already.
  std::error_code failed;
  auto directory = std::filesystem::absolute(settings->runtime.cache_directory, failed);
  if (failed) directory = settings->runtime.cache_directory;
  const PrewarmReport report(*manifest, std::move(directory), output);
  return arguments.dry_run ? look_up(*runtime, ids, manifest->kernels, names, report)
                           : warm(*runtime, names, arguments, stop, report, output);
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
      "Each compile runs in a process of its own, and SIGINT or SIGTERM ends it within two "
      "seconds.\n"
      "Exit codes: 0 all is in the cache; 1 a kernel failed or could not be stored; 2 usage;\n"
      "3 no NVRTC and something to compile, or no cache directory. A dry run is 0 whatever is\n"
      "missing, and 3 when it can make no key: without NVRTC the cache must know a toolchain.");
  const auto arguments = std::make_shared<Arguments>();
  auto& given = arguments->given;
  auto& model = add_option(verb, "--model", arguments->model, "NAME",
                           "A model that Kiln knows: " + known_models());
  exclude(add_option(verb, "--manifest", arguments->manifest, "FILE",
                     "A manifest of your own, or what KILN_RECORD wrote"),
          model);
  const auto parameter = [&](const char* name) {
    return [arguments, name](const std::string& value) { arguments->parameters[name] = value; };
  };
  add_option(verb, "--tp", parameter("tp"), "RANKS",
             "Ranks of tensor parallelism [the manifest's default]");
  auto& kv = add_option(verb, "--kv", parameter("kv"), "FORMAT",
                        "Compressed cache: nvfp4 or fp8 [the manifest's default]");
  add_architectures(verb, given);
  add_cache_directory(verb, given);
  add_jobs(verb, given);
  add_seconds(verb, "--time-limit", arguments->limits.whole,
              "Stop after this time; what is finished is kept");
  add_seconds(verb, "--compile-limit", arguments->limits.compile,
              "Give a kernel up that takes longer to compile");
  add_option(verb, "--trace", arguments->trace_file, "FILE",
             "Write a timeline for chrome://tracing or Perfetto");
  add_option(verb, "--html", arguments->html_file, "FILE", "Write a page with a timeline");
  add_flag(verb, "--dry-run", arguments->dry_run,
           "Compile and write nothing; show which keys are in the cache");
  return {&verb,
          [arguments](Output& output) { return run(*arguments, output); },
          {{&model, kernels::model_names()}, {&kv, {"nvfp4", "fp8"}}}};
}

}  // namespace kiln::cli
