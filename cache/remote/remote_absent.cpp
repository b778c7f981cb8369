// Stands in for the remote tier where Kiln is built without it.
#include <memory>
#include <string>
#include <vector>

#include "cache/remote/remote_tier.hpp"
#include "cache/remote/url.hpp"

namespace kiln::cache {
namespace {

Error absent(const RemoteOptions& options) {
  const auto& url = options.objects.empty() ? options.leases : options.objects;
  return Error(ErrorCode::unsupported,
               "the remote cache " + without_secrets(url) +
                   " cannot be used: this Kiln was built without remote caches; build it with "
                   "KILN_WITH_REMOTE=ON, or name no remote cache (KILN_REMOTE)");
}

}  // namespace

Result<std::unique_ptr<RemoteTier>> open_remote(const RemoteOptions& options,
                                                const std::vector<PublicKey>&, const LogSink&) {
  return absent(options);
}

Result<std::vector<RemoteCheck>> check_remote(const RemoteOptions& options) {
  return absent(options);
}

}  // namespace kiln::cache
