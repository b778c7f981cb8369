// What compiles took before: kept in the cache beside the entries, to order later ones by and to
// tell how many fit into memory. A hint that is lost or wrong costs order, nothing else.
//
// Threads: any member from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/cache/store.hpp"
#include "kiln/kernel_spec.hpp"
#include "runtime/fork_mutex.hpp"

namespace kiln {

struct CompileCost {
  std::chrono::milliseconds time{};
  std::uint64_t peak_bytes = 0;  ///< of the compiling process; 0: not known
};

/// One record, as it stands in the cache.
struct CompileHint {
  std::string_view subject{};  ///< 32 bytes of the record: the kernel that it speaks of
  CompileCost cost{};          ///< both below 2^50
};
/// Empty for what is no hint.
std::optional<CompileHint> parse_hint(std::string_view record);

class CompileHints {
 public:
  /// `store` may be null: then hints are those of this process.
  explicit CompileHints(cache::Store* store) : store_(store) {}

  /// What `spec` took on `architecture`, whatever its sources were then.
  std::optional<CompileCost> find(const KernelSpec& spec, std::string_view architecture);
  /// The dearest of all that are known; none are known of an empty cache.
  std::uint64_t largest_peak();
  /// Keeps what it took. Written only where it is half as much again as what is known, so that a
  /// kernel has a handful of hints at most, and for some thousands of kernels at most.
  void note(const KernelSpec& spec, std::string_view architecture, const CompileCost& cost);

 private:
  void read_once();  // with the mutex held

  cache::Store* store_;
  ForkMutex mutex_;
  bool read_ = false;
  std::map<std::string, CompileCost, std::less<>> costs_;  // by subject
};

}  // namespace kiln
