#include "cli/bundle_file.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace kiln::cli {

void add_bundle_file(CLI::App& verb, std::string& file) {
  require(add_option(verb, "FILE", file, "FILE", "The bundle"));
}

void add_signers(CLI::App& verb, BundleArguments& arguments) {
  auto& signers =
      add_list(verb, "--signer", arguments.signers, "FILE",
               "Public key that must have signed, or a file with it; repeated, any one");
  exclude(add_flag(verb, "--any-signer", arguments.any_signer,
                   "Whoever signed, or nobody: guards against accidents, not against people"),
          signers);
}

std::variant<cache::Bundle, Failure> open_bundle(const BundleArguments& arguments) {
  if (arguments.signers.empty() && !arguments.any_signer)
    return usage_failure(
        "name who must have signed the bundle: --signer KEY, the text or the .pub file that kiln "
        "keygen gave; or --any-signer");
  cache::Signers accepted{.anyone = arguments.any_signer};
  for (const auto& signer : arguments.signers) {
    auto key = signer.starts_with("ed25519") ? cache::PublicKey::from_text(signer)
                                             : cache::PublicKey::read(signer);
    if (!key) {
      auto failure = failure_of(key.error());
      failure.message = "--signer: " + failure.message;
      return failure;
    }
    accepted.keys.push_back(*key);
  }
  auto bundle = cache::Bundle::open(arguments.file, accepted);
  if (!bundle) return bundle_failure(bundle.error());
  return *std::move(bundle);
}

Failure bundle_failure(const Error& error) {
  auto failure = failure_of(error);
  if (error.code() == ErrorCode::unsupported) failure.exit = ExitCode::environment;
  return failure;
}

std::string signer_text(const cache::Bundle& bundle) {
  return bundle.signer() ? "signed by " + bundle.signer()->text() : "unsigned";
}

Json json_of(const cache::Bundle& bundle) {
  return {{"bundle", bundle.file().string()},
          {"file_bytes", bundle.file_bytes()},
          {"signer", bundle.signer() ? Json(bundle.signer()->text()) : Json()}};
}

}  // namespace kiln::cli
