// What the verbs of bundles share: the file, whose signature is taken, and how both are told.
//
// Threads: used by the main thread alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "kiln/cache/bundle.hpp"

namespace kiln::cli {

struct BundleArguments {
  std::string file{};
  std::vector<std::string> signers{};  ///< public keys, or files that hold them
  bool any_signer = false;
};

/// The argument FILE.
void add_bundle_file(CLI::App& verb, std::string& file);
/// --signer and --any-signer, one of which a verb needs that trusts what it reads.
void add_signers(CLI::App& verb, BundleArguments& arguments);

/// Opens the bundle for the signers that are named; without one that is a fault of the usage.
std::variant<cache::Bundle, Failure> open_bundle(const BundleArguments& arguments);

/// A library that is missing is the machine's fault.
Failure bundle_failure(const Error& error);

/// "signed by ed25519:...", or "unsigned".
std::string signer_text(const cache::Bundle& bundle);
/// Its file, sizes and signer, as members of a result.
Json json_of(const cache::Bundle& bundle);

}  // namespace kiln::cli
