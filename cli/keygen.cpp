// kiln keygen: a pair of keys to sign bundles with, and to check them.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/bundle_file.hpp"
#include "cli/verbs.hpp"
#include "kiln/cache/signing.hpp"

namespace kiln::cli {
namespace {

Outcome run(const std::string& file, Output& output) {
  const auto public_file = file + ".pub";
  // Before the secret key is there: half a pair is of no use.
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(public_file, ignored)))
    return Failure{.code = "io_failed",
                   .message = "cannot write " + public_file +
                              ": it exists, and a key is never overwritten; name another file"};
  const auto key = cache::SecretKey::generate();
  if (!key) return bundle_failure(key.error());
  if (auto status = key->write(file); !status) return failure_of(status.error());
  const auto public_key = key->public_key();
  if (auto status = public_key.write(public_file); !status) {
    std::filesystem::remove(file, ignored);
    return failure_of(status.error());
  }
  output.line("secret key  " + printable(file) + " (for its owner's eyes only; it signs)");
  output.line("public key  " + printable(public_file) + " (for all who check)");
  output.line(public_key.text());
  output.object(
      {{"secret_file", file}, {"public_file", public_file}, {"public_key", public_key.text()}});
  return ExitCode::done;
}

}  // namespace

Verb add_keygen(CLI::App& kiln) {
  auto& verb = add_verb(kiln, "keygen", "Make a key to sign bundles with",
                        "Examples:\n"
                        "  kiln keygen kiln.key\n"
                        "The secret key goes into FILE (mode 0600), the public one into FILE.pub.\n"
                        "Neither is ever overwritten.");
  const auto file = std::make_shared<std::string>();
  require(add_option(verb, "FILE", *file, "FILE", "Where the secret key goes"));
  return {&verb, [file](Output& output) { return run(*file, output); }};
}

}  // namespace kiln::cli
