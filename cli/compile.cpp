// kiln compile: one source of the user's own into the cache, and what it uses.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/architectures.hpp"
#include "cli/compile_report.hpp"
#include "cli/file_output.hpp"
#include "cli/settings.hpp"
#include "cli/source_request.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

struct CompileArguments {
  Given given{};
  SourceArguments source{};
  std::string output{};
};

// What the runtime logs while it compiles, until the report is there, which says some of it too.
struct HeldLog {
  std::mutex mutex{};
  std::vector<std::pair<LogLevel, std::string>> messages{};

  void pass_on(const CompileReport& report, const LogSink& sink) const {
    for (const auto& [level, text] : messages)
      if (!is_in(report, text)) sink(level, as_typed(report.file, text));
  }

 private:
  static bool is_in(const CompileReport& report, const std::string& text) {
    const auto holds = [&](std::string_view part) {
      return !part.empty() && text.find(part) != std::string::npos;
    };
    return std::any_of(report.targets.begin(), report.targets.end(), [&](const auto& target) {
      if (target.artifact && holds(target.artifact->facts.log)) return true;
      if (target.report.storing) return false;
      // The store warns of its first trouble, with this cure, whatever it met it at.
      const auto& error = target.report.storing.error();
      return holds(error.message()) ||
             (error.code() == ErrorCode::io_failed && holds("KILN_CACHE_DIR"));
    });
  }
};

Outcome run(const CompileArguments& arguments, Output& output) {
  auto settings = settings_from(arguments.given, process_environment());
  if (!settings) return failure_of(settings.error());
  const std::array inputs{
      InputFile{"the source", arguments.source.file},
      InputFile{"KILN_REMOTE_KEY", process_environment()("KILN_REMOTE_KEY").value_or("")}};
  if (auto failure = output_is_input("-o", arguments.output, inputs)) return *std::move(failure);
  const auto held = std::make_shared<HeldLog>();
  auto opened = open_source(
      arguments.source, *settings,
      [held, sink = output.log_sink(LogLevel::warning)](LogLevel level, std::string_view text) {
        // Of use only while it lasts.
        if (text.find("; waiting for ") != std::string_view::npos) return sink(level, text);
        const std::lock_guard lock(held->mutex);
        held->messages.emplace_back(level, text);
      });
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& [file, spec, runtime, id] = std::get<SourceRequest>(opened);
  auto targets = architectures_of(*settings, runtime);
  if (auto* failure = std::get_if<Failure>(&targets)) return std::move(*failure);
  const auto& architectures = std::get<std::vector<std::string>>(targets);
  if (!arguments.output.empty() && architectures.size() > 1)
    return usage_failure("-o takes the code of one architecture, and there are " +
                         std::to_string(architectures.size()) + "; name one with --arch");

  const auto warmed = runtime.warmup({.architectures = architectures});
  if (!warmed) return failure_of(warmed.error());
  std::error_code failed;
  CompileReport report{
      .file = file,
      .entry = spec.name_expression.empty() ? spec.entry : spec.name_expression,
      .cache_directory = std::filesystem::absolute(settings->runtime.cache_directory, failed)};
  for (const auto& kernel : warmed->kernels) {
    CompiledTarget target{.report = kernel};
    if (kernel.status) {
      auto artifact = runtime.artifact(id, kernel.architecture);  // in memory by now
      if (!artifact) return failure_of(artifact.error());
      target.artifact = *std::move(artifact);
      if (!arguments.output.empty()) {
        const auto& made = *target.artifact;
        if (auto failure = write_output(
                arguments.output, {reinterpret_cast<const char*>(made.cubin), made.cubin_bytes}))
          return *std::move(failure);
        report.output_file = arguments.output;
      }
    }
    report.targets.push_back(std::move(target));
  }
  held->pass_on(report, output.log_sink(LogLevel::warning));
  const auto exit = tell(report, output);
  // A failure's message says so by itself, where that is why.
  if (exit == ExitCode::done) warn_of_unasked(*settings, output);
  return exit;
}

}  // namespace

Verb add_compile(CLI::App& kiln) {
  auto& verb = add_verb(
      kiln, "compile", "Compile a CUDA source into a cache; needs no GPU",
      "Examples:\n"
      "  kiln compile scale.cu --arch sm_90a\n"
      "  kiln compile gemm.cu --arch sm_90a,sm_100a --entry gemm --key tile=128 -DSTAGES=4 -I inc\n"
      "  kiln compile copy.cu --arch sm_90a --name-expression 'copy<float>' -o copy.cubin --json\n"
      "Quoted includes are looked for beside FILE, among Kiln's own device headers and in -I.\n"
      "Code that would hold a directory of this machine (--debug; --lineinfo with headers of -I) "
      "or\n"
      "the time is compiled and not stored. Exit codes: 0 compiled, and stored unless it must not\n"
      "be; 1 FILE cannot be compiled, or the code not stored; 2 usage; 3 no NVRTC.");
  const auto arguments = std::make_shared<CompileArguments>();
  auto& given = arguments->given;
  require(add_option(verb, "FILE", arguments->source.file, "FILE", "The source"));
  add_architectures(verb, given);
  auto standard = add_source_options(verb, arguments->source);
  add_cache_directory(verb, given);
  add_read_only_caches(verb, given);
  add_option(verb, "-o,--output", arguments->output, "FILE", "Write the cubin there too");
  return {&verb,
          [arguments](Output& output) { return run(*arguments, output); },
          {std::move(standard)}};
}

}  // namespace kiln::cli
