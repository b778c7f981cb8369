// The seal: which kernels are warmed up, and what happens to requests for others.
//
// Threads: any member from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kiln/runtime.hpp"
#include "runtime/fork_mutex.hpp"

namespace kiln {

class Seal {
 public:
  using Subject = std::pair<std::uint32_t, std::string>;  ///< index of a kernel, and architecture

  void close(SealPolicy policy);
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

  /// `spec` must outlive the seal.
  void warmed(const Subject& subject, const KernelSpec& spec, const cache::Digest& key);
  /// The error for one that is not.
  Error miss(const Subject& subject, const KernelSpec& spec, const cache::Digest& key) const;
  OnMiss decide(const Error& miss) const;

 private:
  struct Warmed {
    const KernelSpec* spec = nullptr;
    cache::Digest key{};
  };
  std::atomic<bool> closed_{false};
  mutable ForkMutex mutex_;
  std::shared_ptr<const SealPolicy> policy_;
  std::map<Subject, Warmed> warmed_;
};

}  // namespace kiln
