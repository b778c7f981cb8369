// What a warmup is asked, and what it reports.
//
// Threads: values. The progress callback runs on the warmup's threads, one call at a time, and must
// not throw.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/error.hpp"

namespace kiln {

/// Where an artifact came from.
enum class Origin : unsigned char {
  memory,      ///< already in this process
  disk,        ///< a verified hit in the writable cache directory
  lower_tier,  ///< a verified hit in one of the read-only ones
  compiled,    ///< compiled by this call
  waited,      ///< compiled by another process or thread while this call waited
  failed,      ///< see KernelReport::status
};
KILN_API std::string_view to_string(Origin origin) noexcept;

struct KernelReport {
  std::string kernel{};
  std::string architecture{};
  cache::Digest key{};  ///< zero when no key could be made
  Origin origin = Origin::failed;
  std::chrono::nanoseconds time{};  ///< look-up, wait, compile and store
  std::size_t cubin_bytes = 0;
  /// False when it was compiled but is not kept on disk.
  bool stored = true;
  /// Why not: not_cacheable where it must not be kept, or nothing is; io_failed where it could not.
  Status storing{};
  Status status{};
};

struct WarmupReport {
  std::vector<KernelReport> kernels{};  ///< in order of registration, then architecture
  std::size_t requested = 0;            ///< = hits + compiled + waited + failed
  std::size_t hits = 0;                 ///< from memory or disk
  std::size_t compiled = 0;
  std::size_t waited = 0;
  std::size_t failed = 0;
  std::size_t not_stored = 0;  ///< of the compiled ones
  bool nvrtc_loaded = false;   ///< in this process, by now
  std::string toolchain{};     ///< the identity that the keys were made with
  std::chrono::nanoseconds time{};
};

struct Progress {
  std::size_t done = 0;
  std::size_t requested = 0;
  const KernelReport* latest = nullptr;  ///< what was just done; null at the start
};

struct WarmupOptions {
  /// Targets such as "sm_90a". Empty: those of the devices in this machine.
  std::vector<std::string> architectures{};
  /// Compiles at a time; 0: RuntimeOptions::jobs.
  unsigned jobs = 0;
  /// Called at the start and after each kernel.
  std::function<void(const Progress&)> progress{};
};

}  // namespace kiln
