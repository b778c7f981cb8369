// kiln push and kiln pull: the kernels of a manifest from the cache here to the remote one, and
// back. Neither compiles.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/architectures.hpp"
#include "cli/entry_facts.hpp"
#include "cli/manifest_request.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {
namespace {

struct RemoteCopyArguments {
  Given given{};
  ManifestArguments manifest{};
};

enum class Way : unsigned char { push, pull };

/// One line of the result.
struct Copied {
  std::string kernel{};
  std::string title{};  ///< see ManifestRequest
  std::string architecture{};
  std::string key{};
  bool done = false;
  bool was_found = false;
  std::string why{};
};

Copied copy(Runtime& runtime, Way way, KernelId id, const std::string& architecture) {
  Copied copied{.architecture = architecture};
  const auto found =
      way == Way::push ? runtime.look_up(id, architecture) : runtime.fetch(id, architecture);
  if (!found) {
    copied.why = found.error().message();
    return copied;
  }
  copied.key = found->key.hex();
  copied.done = copied.was_found = found->found;
  if (!found->found) {
    copied.why = way == Way::push ? "not in the cache" : "not in the remote cache";
  } else if (way == Way::push) {
    const auto status = runtime.send(id, architecture);
    copied.done = status.ok();
    if (!status) copied.why = status.error().message();
  }
  return copied;
}

Outcome run(const RemoteCopyArguments& arguments, Way way, Output& output) {
  auto settings = settings_from(arguments.given, process_environment());
  if (!settings) return failure_of(settings.error());
  if (auto failure = bad_remote(*settings, way == Way::push)) return *std::move(failure);
  // Who only gets takes no lease, and sends nothing back.
  if (way == Way::pull) settings->runtime.remote.signer = nullptr;
  auto opened = open_manifest(arguments.manifest, *settings, output);
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  auto& [manifest, runtime, ids, titles] = std::get<ManifestRequest>(opened);
  const auto architectures = architectures_of(*settings, runtime);
  if (const auto* failure = std::get_if<Failure>(&architectures)) return *failure;

  std::vector<Copied> copies;
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (const auto& architecture : std::get<std::vector<std::string>>(architectures)) {
      copies.push_back(copy(runtime, way, ids[i], architecture));
      copies.back().kernel = manifest.kernels[i].name;
      copies.back().title = titles[i];
    }
  const auto flushed = runtime.flush(kLongestUpload);
  if (!flushed) output.message("kiln: " + flushed.error().message());
  // What came of each upload is not told apart.
  if (way == Way::push && !flushed)
    for (auto& copied : copies) {
      if (copied.done) copied.why = "it may not have arrived";
      copied.done = false;
    }

  auto kernels = Json::array();
  std::size_t done = 0;
  for (const auto& copied : copies) {
    done += copied.done ? 1u : 0u;
    const char* state = copied.done ? (way == Way::push ? "sent" : "here")
                        : way == Way::push && copied.was_found ? "unsent"
                                                               : "missing";
    output.line(padded(state, 8) + "  " + padded(copied.architecture, 8) + "  " +
                padded(copied.key, 32) + "  " + copied.title +
                (copied.why.empty() ? "" : " (" + printable(copied.why) + ")"));
    kernels.push_back({{"kernel", copied.kernel},
                       {"arch", copied.architecture},
                       {"key", copied.key},
                       {"done", copied.done},
                       {"why", copied.why}});
  }
  warn_of_unasked(*settings, output);
  const auto arrived = runtime.cache_counters().remote.value_or(cache::RemoteCounters{}).uploaded;
  output.line(std::to_string(way == Way::push ? arrived : done) + " of " +
              counted(copies.size(), "kernel") + " " +
              (way == Way::push ? "arrived at" : "are here, or came from") + " the remote cache");
  output.object({{"requested", copies.size()},
                 {"done", way == Way::push ? arrived : done},
                 {"arrived", flushed.ok()},
                 {"kernels", std::move(kernels)}});
  return done == copies.size() && flushed ? ExitCode::done : ExitCode::failed;
}

Verb add_copy(CLI::App& kiln, Way way, const char* name, const char* what, const char* footer) {
  auto& verb = add_verb(kiln, name, what, footer);
  const auto arguments = std::make_shared<RemoteCopyArguments>();
  auto choices = add_manifest_options(verb, arguments->manifest);
  add_architectures(verb, arguments->given);
  add_cache_directory(verb, arguments->given);
  add_read_only_caches(verb, arguments->given);
  add_remote(verb, arguments->given);
  if (way == Way::push) add_remote_key(verb, arguments->given);
  return {&verb, [arguments, way](Output& output) { return run(*arguments, way, output); },
          std::move(choices)};
}

}  // namespace

Verb add_push(CLI::App& kiln) {
  return add_copy(
      kiln, Way::push, "push", "Send a model's kernels to the remote cache",
      "Examples:\n"
      "  kiln push --model deepseek-v4.1-flash --arch sm_90a --remote https://host/kiln "
      "--secret-key builder.key\n"
      "Compiles nothing; see kiln prewarm --push.\n"
      "Exit codes: 0 all arrived; 1 one is missing here, or did not arrive; 2 usage; 3 "
      "no cache\ndirectory.");
}

Verb add_pull(CLI::App& kiln) {
  return add_copy(
      kiln, Way::pull, "pull", "Get a model's kernels from the remote cache",
      "Examples:\n"
      "  kiln pull --model deepseek-v4.1-flash --arch sm_90a --remote https://host/kiln\n"
      "Compiles nothing, and waits for what another host compiles at this moment.\n"
      "Exit codes: 0 all are here; 1 one is missing; 2 usage; 3 no cache directory.");
}

}  // namespace kiln::cli
