#include "cli/manifest_request.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/distinctions.hpp"
#include "cli/recording_file.hpp"
#include "kiln/kernels/kernels.hpp"

namespace kiln::cli {
namespace {

std::string known_models() {
  return joined(kernels::model_names(), ", ");
}

Result<kernels::ManifestParameters> parameters_in(const ManifestArguments& arguments) {
  kernels::ManifestParameters parameters;
  auto settings = arguments.named;
  settings.insert(settings.end(), arguments.set.begin(), arguments.set.end());
  for (const auto& setting : settings) {
    const auto equals = setting.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == setting.size())
      return Error(ErrorCode::invalid_argument, "--set \"" + setting +
                                                    "\" sets no parameter; write NAME=VALUE, such "
                                                    "as tp=4");
    const auto value = setting.substr(equals + 1);
    const auto& held = parameters.try_emplace(setting.substr(0, equals), value).first->second;
    if (held != value)
      return Error(ErrorCode::invalid_argument, "the parameter " + setting.substr(0, equals) +
                                                    " is set to " + held + " and to " + value +
                                                    "; set it once");
  }
  return parameters;
}

Result<kernels::Manifest> read_manifest(const ManifestArguments& arguments) {
  KILN_TRY(const auto parameters, parameters_in(arguments));
  if (!arguments.manifest.empty()) {
    const auto models = kernels::model_names();
    std::error_code ignored;
    if (std::find(models.begin(), models.end(), arguments.manifest) != models.end() &&
        !std::filesystem::exists(arguments.manifest, ignored))
      return Error(ErrorCode::invalid_argument, "there is no file " + arguments.manifest +
                                                    "; for the model that Kiln knows by this name "
                                                    "write --model " +
                                                    arguments.manifest);
    return kernels::read_manifest_file(arguments.manifest, parameters);
  }
  if (!arguments.model.empty()) return kernels::model_manifest(arguments.model, parameters);
  return Error(ErrorCode::invalid_argument, "nothing to compile is named: use --model (" +
                                                known_models() + ") or --manifest FILE");
}

// A recording stands for the run that it was made of: its own sources, and not the ones in here.
Status add_recorded(Runtime& runtime, const Recording& recording) {
  for (const auto& [name, text] : recording.sources)
    if (auto status = runtime.add_source(name, text); !status) return status;
  return {};
}

// What a recording names, as a manifest.
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

}  // namespace

std::vector<Choices> add_manifest_options(CLI::App& verb, ManifestArguments& arguments) {
  auto& model = add_option(verb, "--model", arguments.model, "NAME",
                           "A model that Kiln knows: " + known_models());
  exclude(add_option(verb, "--manifest", arguments.manifest, "FILE",
                     "A manifest of your own (kiln/kernels/manifest.hpp has the form), or "
                     "what\nKILN_RECORD wrote"),
          model);
  const auto parameter = [&](const std::string& name) {
    return [&arguments, start = name + '='](const std::string& value) {
      arguments.named.push_back(start + value);
    };
  };
  add_option(verb, "--tp", parameter("tp"), "RANKS",
             "Ranks of tensor parallelism [the manifest's default]");
  auto& kv = add_option(verb, "--kv", parameter("kv"), "FORMAT",
                        "Compressed cache: nvfp4 or fp8 [the manifest's default]");
  add_list(verb, "--set", arguments.set, "NAME=VALUE",
           "Any parameter of the manifest, repeated; --tp 4 is --set tp=4");
  return {{&model, kernels::model_names()}, {&kv, {"nvfp4", "fp8"}}};
}

std::variant<ManifestRequest, Failure> open_manifest(const ManifestArguments& arguments,
                                                     Settings& settings, Output& output) {
  std::optional<Recording> recording;
  if (!arguments.manifest.empty() && holds_recording(arguments.manifest)) {
    auto read = read_recording_file(arguments.manifest);
    if (!read) return failure_of(read.error());
    if (arguments.has_parameters())
      return usage_failure(arguments.manifest + " is a recording, which has no parameters");
    if (settings.architectures.empty()) settings.architectures = architectures_in(*read);
    recording = *std::move(read);
  }
  auto manifest = recording ? Result<kernels::Manifest>(manifest_of(*recording, arguments.manifest))
                            : read_manifest(arguments);
  if (!manifest) return failure_of(manifest.error());
  if (auto failure = bad_cache_directory(settings)) return *std::move(failure);

  auto options = settings.runtime;
  options.log = output.log_sink(LogLevel::warning);
  options.record_file.clear();  // compiling ahead is no run
  auto runtime = Runtime::open(options);
  if (!runtime) return failure_of(runtime.error());
  if (auto status = recording ? add_recorded(*runtime, *recording) : kernels::add_sources(*runtime);
      !status)
    return failure_of(status.error());
  std::vector<KernelId> ids;
  std::vector<MarkedRow> rows;
  for (const auto& spec : manifest->kernels) {
    const auto id = runtime->add(spec);
    if (!id) return failure_of(id.error());
    ids.push_back(*id);
    rows.push_back({spec.name, marks_of(spec)});
  }
  auto titles = distinctions(rows);
  for (std::size_t i = 0; i < titles.size(); ++i)
    titles[i].insert(0, printable(manifest->kernels[i].name));
  if (ids.empty())
    output.message("warning: the manifest of " + manifest->model +
                   " needs no kernel with these parameters: there is nothing to compile");
  return ManifestRequest{*std::move(manifest), *std::move(runtime), std::move(ids),
                         std::move(titles)};
}

}  // namespace kiln::cli
