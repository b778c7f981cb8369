// kiln bundle unpack: the entries of a bundle into a cache.
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "cli/bundle_file.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

// Where the runtime looks for the compilers that a cache was filled by, when it has none itself.
constexpr std::string_view kToolchainRecords = "toolchain";

struct BundleUnpackArguments {
  Given given{};
  BundleArguments bundle{};
};

Outcome run(const BundleUnpackArguments& arguments, Output& output) {
  const auto settings = settings_from(arguments.given, process_environment());
  if (!settings) return failure_of(settings.error());
  auto opened = open_bundle(arguments.bundle);
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& bundle = std::get<cache::Bundle>(opened);
  if (auto failure = bad_cache_directory(*settings)) return *std::move(failure);
  auto store = cache::Store::open({.directory = settings->runtime.cache_directory,
                                   .durable = settings->runtime.durable,
                                   .log = output.log_sink(LogLevel::warning),
                                   .trust = settings->runtime.cache_trust,
                                   .limits = settings->runtime.cache_limits});
  if (!store) return failure_of(store.error());

  // First, so that no entry is ever there without its toolchain.
  std::set<std::string> toolchains;
  for (const auto& entry : bundle.entries()) toolchains.insert(entry.toolchain);
  toolchains.erase("");
  for (const auto& toolchain : toolchains)
    if (auto status = store->add_record(kToolchainRecords, toolchain); !status)
      return failure_of(status.error());

  std::size_t added = 0;
  std::size_t already_there = 0;
  auto damaged = Json::array();
  for (const auto& each : bundle.entries()) {
    const auto found = bundle.find(each.name);
    if (!found) return bundle_failure(found.error());
    if (!found->entry) {
      output.line(each.name.hex() + "  damaged: " + printable(found->damage));
      damaged.push_back({{"key", each.name.hex()}, {"damage", found->damage}});
      continue;
    }
    const auto& entry = *found->entry;
    const bool there = store->find(each.name, entry.key_text()).entry.has_value();
    if (!there)
      if (auto status = store->publish(entry.key_text(), entry.facts(), entry.payload()); !status)
        return failure_of(status.error());
    ++(there ? already_there : added);
  }

  const auto directory = store->directory().string();
  output.line(std::to_string(added) + " added, " + std::to_string(already_there) +
              " already there" +
              (damaged.empty() ? "" : ", " + std::to_string(damaged.size()) + " damaged") + " in " +
              printable(directory) + ", from a bundle " + signer_text(bundle));
  auto result = json_of(bundle);
  result.update({{"cache_dir", directory}, {"added", added}, {"already_there", already_there}});
  const bool whole = damaged.empty();
  result["damaged"] = std::move(damaged);
  output.object(result);
  return whole ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_bundle_unpack(CLI::App& bundle) {
  auto& verb = add_verb(
      bundle, "unpack", "Put the entries of a bundle into a cache",
      "Examples:\n"
      "  kiln bundle unpack kernels.kiln --signer kiln.key.pub --cache-dir /var/cache/kiln\n"
      "  kiln bundle unpack kernels.kiln --signer ed25519:9a3c...\n"
      "Exit codes: 0 all is in the cache; 1 the bundle is refused, an entry is damaged or could "
      "not\n"
      "be stored; 2 usage; 3 no cache directory, or no libsodium.");
  const auto arguments = std::make_shared<BundleUnpackArguments>();
  add_bundle_file(verb, arguments->bundle.file);
  add_signers(verb, arguments->bundle);
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
