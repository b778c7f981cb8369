// kiln bundle pack: all entries of a cache into one file.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cli/bundle_file.hpp"
#include "cli/file_output.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/key_text.hpp"

namespace kiln::cli {
namespace {

struct BundlePackArguments {
  Given given{};
  std::string file{};
  std::string secret_key{};
  bool is_unsigned = false;
};

// What the index tells of an entry, from what its key was made of.
cache::BundleSource source_of(const cache::Digest& name, const cache::Entry& entry) {
  cache::BundleSource source{.name = name};
  for (auto& field : key_text_fields(entry.key_text())) {
    if (field.label == "architecture")
      source.architecture = std::move(field.value);
    else if (field.label == "toolchain")
      source.toolchain = std::move(field.value);
  }
  return source;
}

/// All entries of `store` that are whole, for a bundle of them.
std::variant<std::vector<cache::BundleSource>, Failure> sources_in(const cache::Store& store) {
  const auto listed = store.list();
  if (!listed) return unreadable_cache(listed.error());
  std::vector<cache::BundleSource> sources;
  for (const auto& info : *listed) {
    const auto found = store.look_at(info.name);
    if (!found) return unreadable_cache(found.error());
    if (!found->damage.empty())
      return Failure{.code = "damaged",
                     .message = "entry " + info.name.hex() + " in " + store.directory().string() +
                                " is damaged (" + found->damage +
                                "), and no bundle was made; fill the cache again first"};
    if (found->entry) sources.push_back(source_of(info.name, *found->entry));
  }
  return sources;
}

/// How often what changes meanwhile is listed anew.
constexpr int kTries = 16;

/// Writes the bundle; why it could not be. An entry that others remove meanwhile is left out.
std::optional<Failure> pack(const cache::Store& store, const cache::SecretKey* key,
                            const std::string& file) {
  for (int tries_left = kTries;;) {
    auto sources = sources_in(store);
    if (auto* failure = std::get_if<Failure>(&sources)) return std::move(*failure);
    bool went = false;
    const auto status = cache::write_bundle(
        store, std::get<std::vector<cache::BundleSource>>(std::move(sources)), key, file, &went);
    if (status) return std::nullopt;
    if (went && --tries_left > 0) continue;
    auto failure = bundle_failure(status.error());
    if (went)
      failure.message += "; others remove entries of " + store.directory().string() +
                         " all the while: pack again once they have ended";
    return failure;
  }
}

Outcome run(const BundlePackArguments& arguments, Output& output) {
  if (arguments.secret_key.empty() && !arguments.is_unsigned)
    return usage_failure(
        "name the key to sign with: --secret-key FILE, which kiln keygen makes; or --unsigned");
  const std::array inputs{InputFile{"--secret-key", arguments.secret_key}};
  if (auto failure = output_is_input("FILE", arguments.file, inputs)) return *std::move(failure);
  std::optional<cache::SecretKey> key;
  if (!arguments.is_unsigned) {
    auto read = cache::SecretKey::read(arguments.secret_key);
    if (!read) return bundle_failure(read.error());
    key.emplace(*std::move(read));
  }
  auto opened =
      open_cache(arguments.given, process_environment(), output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);
  if (auto failure = pack(store, key ? &*key : nullptr, arguments.file)) return *std::move(failure);
  // Read again, as those will who get it.
  cache::Signers accepted{.anyone = !key};
  if (key) accepted.keys.push_back(key->public_key());
  const auto bundle = cache::Bundle::open(arguments.file, accepted);
  if (!bundle) return bundle_failure(bundle.error());

  const auto count = bundle->entries().size();
  output.line(entries_text(count) + ", " + bytes_text(bundle->file_bytes()) + " in " +
              printable(arguments.file) + ", " + signer_text(*bundle));
  if (count == 0)
    output.message("warning: " + store.directory().string() + " holds no entry, so the bundle " +
                   "holds none");
  auto result = json_of(*bundle);
  result["entries"] = count;
  output.object(result);
  return ExitCode::done;
}

}  // namespace

Verb add_bundle_pack(CLI::App& bundle) {
  auto& verb = add_verb(
      bundle, "pack", "Pack all entries of a cache into one signed file",
      "Examples:\n"
      "  kiln bundle pack kernels.kiln --secret-key kiln.key --cache-dir image-cache\n"
      "  kiln bundle pack kernels.kiln --unsigned\n"
      "The same entries under the same key give the same bytes. FILE is replaced where it exists.\n"
      "Exit codes: 0 packed; 1 an entry is damaged, or FILE or a key file fails; 2 usage; 3 the\n"
      "cache cannot be read, or there is no libsodium.");
  const auto arguments = std::make_shared<BundlePackArguments>();
  add_bundle_file(verb, arguments->file);
  auto& key = add_option(verb, "--secret-key", arguments->secret_key, "FILE", "Sign with this key");
  exclude(add_flag(verb, "--unsigned", arguments->is_unsigned,
                   "Sign with none: readers must then take a bundle of anyone"),
          key);
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
