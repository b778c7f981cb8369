#include "cli/manifest_request.hpp"

#include <utility>

#include "kiln/kernels/kernels.hpp"

namespace kiln::cli {
namespace {

std::string known_models() {
  std::string names;
  for (const auto& name : kernels::model_names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

Result<kernels::Manifest> read_manifest(const ManifestArguments& arguments) {
  if (!arguments.manifest.empty())
    return kernels::read_manifest_file(arguments.manifest, arguments.parameters);
  if (!arguments.model.empty())
    return kernels::model_manifest(arguments.model, arguments.parameters);
  return Error(ErrorCode::invalid_argument, "nothing to compile is named: use --model (" +
                                                known_models() + ") or --manifest FILE");
}

}  // namespace

std::vector<Choices> add_manifest_options(CLI::App& verb, ManifestArguments& arguments) {
  auto& model = add_option(verb, "--model", arguments.model, "NAME",
                           "A model that Kiln knows: " + known_models());
  exclude(add_option(verb, "--manifest", arguments.manifest, "FILE",
                     "A manifest of your own, in its place"),
          model);
  const auto parameter = [&](const char* name) {
    return [&arguments, name](const std::string& value) { arguments.parameters[name] = value; };
  };
  add_option(verb, "--tp", parameter("tp"), "RANKS",
             "Ranks of tensor parallelism [the manifest's default]");
  auto& kv = add_option(verb, "--kv", parameter("kv"), "FORMAT",
                        "Compressed cache: nvfp4 or fp8 [the manifest's default]");
  return {{&model, kernels::model_names()}, {&kv, {"nvfp4", "fp8"}}};
}

std::variant<ManifestRequest, Failure> open_manifest(const ManifestArguments& arguments,
                                                     const Settings& settings, Output& output) {
  auto manifest = read_manifest(arguments);
  if (!manifest) return failure_of(manifest.error());
  if (auto failure = bad_cache_directory(settings)) return *std::move(failure);

  auto options = settings.runtime;
  options.log = output.log_sink(LogLevel::warning);
  auto runtime = Runtime::open(options);
  if (!runtime) return failure_of(runtime.error());
  if (auto status = kernels::add_sources(*runtime); !status) return failure_of(status.error());
  std::vector<KernelId> ids;
  for (const auto& spec : manifest->kernels) {
    const auto id = runtime->add(spec);
    if (!id) return failure_of(id.error());
    ids.push_back(*id);
  }
  if (ids.empty())
    output.message("warning: the manifest of " + manifest->model +
                   " needs no kernel with these parameters: there is nothing to compile");
  return ManifestRequest{*std::move(manifest), *std::move(runtime), std::move(ids)};
}

}  // namespace kiln::cli
