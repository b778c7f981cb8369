// kiln remote check: what the servers of a remote cache can do, found out by trying.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/cache/remote.hpp"

namespace kiln::cli {
namespace {

std::string answer(const std::optional<bool>& tried) {
  return !tried ? "not tried" : *tried ? "yes" : "no";
}

Json json_of(const cache::RemoteCheck& check) {
  const auto optional = [](const std::optional<bool>& tried) {
    return tried ? Json(*tried) : Json();
  };
  Json json = {{"url", check.url},
               {"serves", check.trouble.empty()},
               {"reads", check.reads},
               {"writes", optional(check.writes)},
               {"leases", optional(check.leases)},
               {"round_trip_us", check.round_trip_us},
               {"note", check.note}};
  if (!check.trouble.empty())
    json["error"] = {{"code", to_string(check.failure)}, {"message", check.trouble}};
  return json;
}

void show(const cache::RemoteCheck& check, bool keeps_leases, Output& output) {
  output.line(check.url);
  char time[32];
  std::snprintf(time, sizeof time, "%.0f us", check.round_trip_us);
  output.line("  reads       " + std::string(check.reads ? "yes, a round trip takes " : "no") +
              (check.reads ? time : ""));
  output.line("  writes      " + answer(check.writes));
  if (keeps_leases) output.line("  leases      " + answer(check.leases));
  if (!check.note.empty()) output.line("  note        " + printable(check.note));
  if (!check.trouble.empty()) output.line("  PROBLEM     " + printable(check.trouble));
}

Outcome run_check(const Given& given, Output& output) {
  const auto settings = settings_from(given, process_environment());
  if (!settings) return failure_of(settings.error());
  if (auto failure = bad_remote(*settings, /*sends=*/false)) return *std::move(failure);
  const auto& remote = settings->runtime.remote;
  const auto checks = cache::check_remote(remote);
  if (!checks) return failure_of(checks.error());

  auto described = Json::array();
  bool all_serve = true;
  for (std::size_t i = 0; i < checks->size(); ++i) {
    const auto& check = (*checks)[i];
    show(check, i > 0 || remote.objects.empty(), output);
    described.push_back(json_of(check));
    all_serve &= check.trouble.empty();
  }
  if (!remote.sends())
    output.line("writing was not tried: no key is named (--secret-key FILE, KILN_REMOTE_KEY)");
  if (remote.leases.empty())
    output.line("no leases: hosts that miss a key at the same time compile it each");
  output.object({{"serves", all_serve}, {"servers", std::move(described)}});
  return all_serve ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_remote_check(CLI::App& remote) {
  auto& verb = add_verb(
      remote, "check", "Try what the servers of a remote cache can do",
      "Examples:\n"
      "  kiln remote check https://host/kiln redis://host\n"
      "  kiln remote check https://host/kiln --secret-key builder.key   # also writes\n"
      "With a key it leaves one small object behind, the same each time. Credentials come from\n"
      "files: KILN_REMOTE_TOKEN, KILN_REMOTE_NETRC, KILN_REMOTE_HEADERS, KILN_REMOTE_PASSWORD.\n"
      "Exit codes: 0 all serve; 1 one does not, or a file of credentials fails; 2 usage.");
  const auto given = std::make_shared<Given>();
  add_words(verb, "URL", given->remotes, "The servers [KILN_REMOTE]");
  add_remote_key(verb, *given);
  return {&verb, [given](Output& output) { return run_check(*given, output); }};
}

}  // namespace kiln::cli
