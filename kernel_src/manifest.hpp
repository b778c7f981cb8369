// Manifests: which kernels, with which keys, a model needs. JSON, embedded for the models that Kiln
// ships kernels for, or a user's file of the same form:
//
//   {"schema": 1, "model": "...",
//    "parameters": {"tp": {"values": [1, 2, 4, 8], "default": 1}},
//    "kernels": [{"kernel": "dsv41_kv_insert", "purpose": "...", "key": {"heads": 16, ...}}]}
//
// A key field is a literal, {"parameter": "kv"}, or {"by": "tp", "values": {"1": 64, "2": 32, ...}}
// with one value for each that the parameter allows. A kernel with "when": {"tp": [2, 4]} is needed
// only where each named parameter has one of the values listed; its fields then have values for
// those alone. Threads: pure functions and values.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"

namespace kiln::kernels {

/// Values of a manifest's parameters by name, as text: {{"tp", "4"}, {"kv", "nvfp4"}}.
using ManifestParameters = std::map<std::string, std::string, std::less<>>;

struct Manifest {
  std::string model{};
  ManifestParameters parameters{};  ///< every parameter, with the value in force
  /// Those that the parameters need, in the order of the file; equal ones once.
  std::vector<KernelSpec> kernels{};
};

/// Reads a manifest. `file` is what errors call it; `given` overrides the parameters' defaults.
///
/// Errors  invalid_argument: with file, line and column for a fault of syntax, a member that
///         appears twice, and brackets within brackets 64 times over; with file, JSON pointer,
///         value and what is allowed for any other; for a parameter that the manifest does not have
///         or a value that it does not allow.
KILN_API Result<Manifest> read_manifest(std::string_view text, std::string_view file,
                                        const ManifestParameters& given = {});
/// The same from a file. Errors  invalid_argument as well when it cannot be read.
KILN_API Result<Manifest> read_manifest_file(const std::filesystem::path& file,
                                             const ManifestParameters& given = {});

/// The models with an embedded manifest, in order of name.
KILN_API std::vector<std::string> model_names();
/// The embedded manifest of `model`.
/// Errors  invalid_argument for an unknown model, naming the known ones, and as read_manifest().
KILN_API Result<Manifest> model_manifest(std::string_view model,
                                         const ManifestParameters& given = {});

}  // namespace kiln::kernels
