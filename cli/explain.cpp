// kiln explain: why a kernel is not served from a cache. Compiles, locks and writes nothing.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/architectures.hpp"
#include "cli/key_difference.hpp"
#include "cli/manifest_request.hpp"
#include "cli/settings.hpp"
#include "cli/source_request.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

struct ExplainArguments {
  Given given{};
  SourceArguments source{};
  ManifestArguments manifest{};
};

struct Question {
  KernelId id{};
  std::string kernel{};
  std::string title{};  ///< see ManifestRequest
};

bool has_source_options(const SourceArguments& source) {
  return !source.entry.empty() || !source.name_expression.empty() || !source.key.empty() ||
         !source.macros.empty() || !source.include_roots.empty() || !source.standard.empty() ||
         source.line_info || source.debug || !source.options.empty();
}

Json tell(const Question& question, const std::string& architecture, const Explanation& explained,
          Output& output) {
  const auto key = explained.key.hex();
  auto line = question.title + "  " + architecture + "  " + key + "  ";
  std::vector<std::string> lines;
  const char* verdict = "absent";
  if (!explained.never.empty()) {
    verdict = "never";
    line += "never in a cache: " + explained.never;
  } else if (explained.found) {
    verdict = "found";
    line += "in the cache";
  } else if (!explained.refusal.empty()) {
    verdict = "refused";
    line += "in the cache, and refused: " + explained.refusal;
  } else if (!explained.nearest) {
    line += "not in the cache, which holds no entry";
  } else {
    line += "not in the cache; the nearest of " + entries_text(explained.entries) + " is " +
            explained.nearest->key.hex() + ", which differs in";
    lines = lines_of(explained.nearest->differences, "the request", "the entry");
    // Of another kernel's entry, little else is alike.
    const auto& differences = explained.nearest->differences;
    if (differences.front().aspect == "kernel" && lines.size() > 1) {
      const auto more = lines.size() - 1;
      lines.resize(1);
      lines.push_back(std::to_string(more) +
                      " more, which --json lists: no entry is of this kernel");
    }
  }
  output.line(printable(line));
  for (const auto& each : lines) output.line("  " + each);

  Json json = {{"kernel", question.kernel},
               {"arch", architecture},
               {"key", key},
               {"toolchain", explained.toolchain},
               {"verdict", verdict}};
  if (!explained.never.empty()) json["why"] = explained.never;
  if (!explained.refusal.empty()) json["why"] = explained.refusal;
  if (explained.nearest)
    json["nearest"] = {{"key", explained.nearest->key.hex()},
                       {"differences", json_of_differences(explained.nearest->differences)}};
  return json;
}

Outcome answer(Runtime& runtime, const std::vector<Question>& questions, const Settings& settings,
               Output& output) {
  const auto targets = architectures_of(settings, runtime);
  if (const auto* failure = std::get_if<Failure>(&targets)) return *failure;
  auto kernels = Json::array();
  for (const auto& question : questions)
    for (const auto& architecture : std::get<std::vector<std::string>>(targets)) {
      const auto explained = runtime.explain(question.id, architecture);
      if (!explained)
        return explained.error().code() == ErrorCode::io_failed
                   ? unreadable_cache(explained.error())
                   : failure_of(explained.error());
      kernels.push_back(tell(question, architecture, *explained, output));
    }
  warn_of_unasked(settings, output);
  output.object(
      {{"cache_dir", settings.runtime.cache_directory.string()}, {"kernels", std::move(kernels)}});
  return ExitCode::done;
}

Outcome run(const ExplainArguments& arguments, Output& output) {
  auto settings = settings_from(arguments.given, process_environment());
  if (!settings) return failure_of(settings.error());
  const bool of_manifest =
      !arguments.manifest.model.empty() || !arguments.manifest.manifest.empty();
  if (of_manifest == !arguments.source.file.empty())
    return usage_failure("name what is asked about: FILE, or --model or --manifest");
  if (of_manifest && has_source_options(arguments.source))
    return usage_failure("the options of a source go with FILE; a manifest says them itself");
  if (!of_manifest && arguments.manifest.has_parameters())
    return usage_failure("--set, --tp and --kv go with --model or --manifest");

  if (!of_manifest) {
    auto opened = open_source(arguments.source, *settings, output.log_sink(LogLevel::warning));
    if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
    auto& request = std::get<SourceRequest>(opened);
    return answer(request.runtime, {{request.id, request.spec.name, request.spec.name}}, *settings,
                  output);
  }
  auto opened = open_manifest(arguments.manifest, *settings, output);
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& request = std::get<ManifestRequest>(opened);
  std::vector<Question> questions;
  for (std::size_t i = 0; i < request.ids.size(); ++i)
    questions.push_back({request.ids[i], request.manifest.kernels[i].name, request.titles[i]});
  return answer(request.runtime, questions, *settings, output);
}

}  // namespace

Verb add_explain(CLI::App& kiln) {
  auto& verb = add_verb(
      kiln, "explain", "Show why a kernel is not served from a cache",
      "Examples:\n"
      "  kiln explain scale.cu --arch sm_90a --key tile=128\n"
      "  kiln explain --model deepseek-v4.1-flash --tp 4 --arch sm_90a --cache-dir "
      "/var/cache/kiln\n"
      "Says of each kernel that it is in the cache, which check refused its entry, or in what its\n"
      "key differs from that of the nearest entry. FILE takes the options of kiln compile, and\n"
      "compiles nothing. Exit codes: 0 answered, whatever the answer; 1 FILE cannot be "
      "understood;\n"
      "2 usage; 3 no key can be made for want of a toolchain, or the cache cannot be read.");
  const auto arguments = std::make_shared<ExplainArguments>();
  add_option(verb, "FILE", arguments->source.file, "FILE", "The source");
  auto choices = add_manifest_options(verb, arguments->manifest);
  add_architectures(verb, arguments->given);
  choices.push_back(add_source_options(verb, arguments->source));
  add_cache_directory(verb, arguments->given);
  add_read_only_caches(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); },
          std::move(choices)};
}

}  // namespace kiln::cli
