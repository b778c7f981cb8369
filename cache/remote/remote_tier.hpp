// The remote tier as a store sees it. remote_store.cpp implements it; remote_absent.cpp stands in
// where Kiln is built without it.
//
// Threads: any member from any thread. Lifetime: the Store owns it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/log.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

class RemoteTier {
 public:
  virtual ~RemoteTier() = default;

  /// See Store::fetch(); nothing is stored here.
  virtual Fetched fetch(const Digest& name, std::string_view key_text, Wish wish) = 0;
  /// Sends an entry when there is time, then gives the lease up.
  virtual void publish(std::string_view key_text, std::string_view facts,
                       std::span<const std::byte> payload, FleetLease lease) = 0;
  /// See Store::send().
  virtual Status send(const Entry& entry) = 0;
  virtual Status flush(std::chrono::milliseconds longest, const std::stop_token& stop) = 0;
  virtual RemoteCounters counters() const = 0;

 protected:
  static FleetLease lease_of(std::shared_ptr<void> held) {
    FleetLease lease;
    lease.held_ = std::move(held);
    return lease;
  }
};

/// `signers` are those who may have signed. Errors  as check_remote().
Result<std::unique_ptr<RemoteTier>> open_remote(const RemoteOptions& options,
                                                const std::vector<PublicKey>& signers,
                                                const LogSink& log);

}  // namespace kiln::cache
