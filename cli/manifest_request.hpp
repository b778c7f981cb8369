// The kernels of a manifest, as kiln prewarm and kiln explain take them from the command line,
// registered in a Runtime.
//
// Threads: used by the main thread alone.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/completion_script.hpp"
#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/settings.hpp"
#include "kiln/kernels/manifest.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {

struct ManifestArguments {
  std::string model{};
  std::string manifest{};
  /// Each NAME=VALUE: of --tp and --kv, and of --set.
  std::vector<std::string> named{};
  std::vector<std::string> set{};
  bool has_parameters() const noexcept { return !named.empty() || !set.empty(); }
};

/// --model, --manifest and the parameters; gives the values of those that take one of a few.
/// `arguments` must outlive the parse.
std::vector<Choices> add_manifest_options(CLI::App& verb, ManifestArguments& arguments);

struct ManifestRequest {
  kernels::Manifest manifest{};
  Runtime runtime;
  std::vector<KernelId> ids{};  ///< one for each kernel of the manifest
  /// What to call each of them in a list: its name, and what tells it from others of that name.
  std::vector<std::string> titles{};
};

/// Reads the manifest, or a recording, and registers its kernels. Where `settings` names no
/// architecture a recording's are put there. Warnings go to `output`.
std::variant<ManifestRequest, Failure> open_manifest(const ManifestArguments& arguments,
                                                     Settings& settings, Output& output);

}  // namespace kiln::cli
