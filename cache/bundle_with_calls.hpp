// A bundle over a given table of system calls: that of the store which it is a tier of.
#pragma once

#include <filesystem>
#include <vector>

#include "cache/system_calls.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

/// `calls` must outlive the bundle.
class BundleWithCalls {
 public:
  /// As Bundle::open.
  static Result<Bundle> open(const std::filesystem::path& file, const Signers& accepted,
                             bool* untrusted, const SystemCalls& calls);
  /// As write_bundle.
  static Status write(const Store& store, std::vector<BundleSource> sources,
                      const SecretKey* signer, const std::filesystem::path& file,
                      const SystemCalls& calls, bool* went = nullptr);
};

}  // namespace kiln::cache
