// What kiln doctor says of the remote cache: whether a process with these settings would use it,
// and whether its servers serve now. Nothing is written to a server but a lease under a name that
// is no key's, which is given up at once.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/checks.hpp"
#include "kiln/cache/remote.hpp"

namespace kiln::cli {
namespace {

void add_server(const cache::RemoteCheck& server, Check& check) {
  char trip[64];
  std::snprintf(trip, sizeof trip, ": serves, a round trip takes %.0f us", server.round_trip_us);
  auto line = server.url + (server.trouble.empty() ? trip : ": " + server.trouble);
  if (server.leases) line += *server.leases ? ", grants leases" : ", grants no leases";
  check.lines.push_back(printable(line));
  check.facts["servers"].push_back(
      {{"url", server.url},
       {"serves", server.trouble.empty()},
       {"leases", server.leases ? Json(*server.leases) : Json()},
       {"error", server.trouble.empty() ? Json() : Json(to_string(server.failure))}});
  if (server.trouble.empty()) return;
  check.state = State::note;
  check.cure = "kernels are compiled here while it does not serve; kiln remote check tells more";
}

}  // namespace

Check check_remote(const Settings& settings) {
  const auto& remote = settings.runtime.remote;
  const auto& signers = settings.runtime.cache_trust.signers;
  Check check{.name = "remote cache",
              .origin = settings.origins.remote,
              .facts = {{"servers", Json::array()},
                        {"signers", signers.size()},
                        {"unsigned", remote.accept_anyone},
                        {"sends", remote.sends()}}};
  if (!remote.is_on()) {
    check.lines.emplace_back("none");
    return check;
  }
  const auto problem = [&](std::string line, std::string cure) {
    check.state = State::problem;
    check.lines.push_back(std::move(line));
    check.cure = std::move(cure);
    return check;
  };
  // Of the objects only reading is tried, which leaves nothing behind.
  auto objects = remote;
  objects.leases.clear();
  objects.signer = nullptr;
  objects.send_unsigned = false;
  auto leases = remote;
  leases.objects.clear();
  for (const auto& options : {objects, leases}) {
    if (!options.is_on()) continue;
    const auto servers = cache::check_remote(options);
    if (!servers) return problem(servers.error().message(), "mend it, or unset KILN_REMOTE");
    for (const auto& server : *servers) add_server(server, check);
  }
  check.lines.push_back(remote.sends() ? "what is compiled here is signed and sent"
                                       : "only read: KILN_REMOTE_KEY names no key");
  if (remote.accept_anyone) {
    check.state = std::max(check.state, State::note);
    check.lines.emplace_back("WITHOUT SIGNATURES: who can write to it runs code here");
    check.cure = "unset KILN_REMOTE_UNSIGNED, and name the builders in KILN_CACHE_SIGNERS";
  } else if (signers.empty()) {
    return problem("nobody whose signature would be taken is named, so that no cache opens",
                   "name the builders' public keys in KILN_CACHE_SIGNERS");
  } else {
    check.lines.push_back("objects are taken from " + counted(signers.size(), "signer"));
  }
  return check;
}

}  // namespace kiln::cli
