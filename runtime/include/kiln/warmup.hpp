// What a warmup is asked, and what it reports.
//
// Threads: values. The progress callback runs on the thread that called warmup(), and must not
// throw.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/artifact.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"

namespace kiln {

/// Where an artifact came from.
enum class Origin : unsigned char {
  memory,      ///< already in this process
  disk,        ///< a verified hit in the writable cache directory
  lower_tier,  ///< a verified hit in one of the read-only caches
  remote,      ///< a verified hit in the remote cache
  compiled,    ///< compiled by this call
  waited,      ///< compiled by another process or thread while this call waited
  failed,      ///< see KernelReport::status
};
KILN_API std::string_view to_string(Origin origin) noexcept;

/// How much of a kernel's way a warmup goes.
enum class Depth : unsigned char {
  compile,       ///< the code is in this process and in the store; needs no driver
  load,          ///< and in the driver, with its attributes set for each device of the architecture
  launch_ready,  ///< and in the context, so that the first launch finds nothing left to do: in the
                 ///< current one, and in the primary context of each device that has one in use
};

struct KernelReport {
  std::string kernel{};
  KernelId id{};  ///< which of those of that name
  std::string architecture{};
  cache::Digest key{};  ///< zero when no key could be made
  Origin origin = Origin::failed;
  std::string group{};              ///< that it is first in; empty for none
  std::chrono::nanoseconds time{};  ///< look-up, wait for others, compile and store
  /// When the step that ended it began, from the start of the warmup, and which of its threads
  /// took it, from 1.
  std::chrono::nanoseconds began{};
  unsigned lane = 0;
  std::chrono::nanoseconds queue{};       ///< from the look-up to its own compile
  std::chrono::nanoseconds verify{};      ///< reading and checking an entry
  std::chrono::nanoseconds compile{};     ///< in the compiler, at its last try
  std::chrono::nanoseconds load{};        ///< into the driver, on all devices
  std::chrono::nanoseconds load_began{};  ///< from the start of the warmup; 0 without a load
  std::uint64_t peak_bytes = 0;           ///< of the worker process that compiled it
  bool retried = false;                   ///< alone, after a failure that may not come again
  bool header_shared = false;             ///< compiled with a precompiled header; see KernelSpec
  std::size_t cubin_bytes = 0;
  ResourceUsage usage{};
  std::string log{};  ///< the compiler's warnings
  /// False when it was compiled but is not kept on disk.
  bool stored = true;
  /// Why not: not_cacheable where it must not be kept, or nothing is; io_failed where it could not.
  Status storing{};
  Status status{};
};

struct WarmupReport {
  std::vector<KernelReport> kernels{};  ///< in order of registration, then architecture
  std::size_t requested = 0;            ///< = hits + compiled + waited + failed
  std::size_t hits = 0;                 ///< found without a compile, in any tier or in memory
  std::size_t compiled = 0;
  std::size_t waited = 0;
  std::size_t failed = 0;
  std::size_t not_stored = 0;   ///< of the compiled ones
  std::size_t cubin_bytes = 0;  ///< of all
  unsigned jobs = 0;            ///< compiles at a time
  std::string jobs_reason{};    ///< why so many; empty when there was nothing to compile
  /// Why it ended early: "cancelled" or "the time limit of 10 s"; empty when it did not.
  std::string stopped{};
  bool nvrtc_loaded = false;  ///< in this process or a worker, by now
  std::string toolchain{};    ///< the identity that the keys were made with
  std::chrono::nanoseconds time{};
};

struct Progress {
  std::size_t done = 0;
  std::size_t requested = 0;
  /// What was just done; null at the start, and where only `compiling` has changed.
  const KernelReport* latest = nullptr;
  std::vector<std::string> compiling{};  ///< "kernel architecture", now
  /// For what is left, by what it took before; empty where nothing is known of some.
  std::optional<std::chrono::milliseconds> left{};
};

/// Kernels that are wanted together, such as those of the first request.
struct WarmupGroup {
  std::string name{};
  std::vector<KernelId> kernels{};
};

struct WarmupOptions {
  /// Such as "sm_90a". Empty: those of the devices in this machine.
  std::vector<std::string> architectures{};
  /// Compiles at a time; 0: RuntimeOptions::jobs. Fewer where memory is short, be it for those of
  /// other ranks on the same cache.
  unsigned jobs = 0;
  /// Empty: compile where architectures are named, which means a prewarm; else launch_ready, as far
  /// as there is a context.
  std::optional<Depth> depth{};
  /// Built in this order, before all others; see Runtime::ready_for().
  std::vector<WarmupGroup> groups{};
  /// For all of it; 0: none. See RuntimeOptions::compile_limit for one compile.
  std::chrono::milliseconds time_limit{};
  /// A stop that any thread requests ends the warmup within two seconds, as the time limit does;
  /// what is finished by then is stored, the rest is not_ready in the report.
  std::stop_token cancel{};
  /// Called at the start, after each kernel, and soon after a compile has begun.
  std::function<void(const Progress&)> progress{};
};

/// The report as JSON; as a trace that chrome://tracing and Perfetto show; as a page with a
/// timeline that stands alone.
KILN_API std::string to_json(const WarmupReport& report);
KILN_API std::string to_trace(const WarmupReport& report);
KILN_API std::string to_html(const WarmupReport& report);

}  // namespace kiln
