// The runtime: sources go in, launched kernels come out, compiled at most once per compile key for
// everyone who shares a cache directory.
//
//   open -> add_source -> add (compiles nothing) -> warmup -> get -> prepare -> launch
//
// Threads: every member from any thread. Devices: any number; a kernel is compiled per architecture
// and loaded per device. No driver is needed until get().
// Forks: a process may fork, and use CUDA in the child, until it has initialised CUDA itself. Here
// get(), device(), devices(), tensor maps and a warmup() that names no architecture do that; what
// takes an architecture does not, and installed_architectures() says which ones. The child may go
// on with the Runtime of its parent, whose other threads may be at work in it: fork() waits, a
// second at most, until none of them holds a lock here. Where one held on to it the child's calls
// are invalid_argument, and it opens a Runtime of its own.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/artifact.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/device_info.hpp"
#include "kiln/error.hpp"
#include "kiln/explain.hpp"
#include "kiln/kernel.hpp"
#include "kiln/kernel_spec.hpp"
#include "kiln/launch.hpp"
#include "kiln/options.hpp"
#include "kiln/record.hpp"
#include "kiln/tensor_map.hpp"
#include "kiln/warmup.hpp"

namespace kiln {

/// A source file as text under its include name, such as "kernel_src/device/mma.cuh".
struct SourceText {
  std::string_view name{};
  std::string_view text{};
};

/// What is known of a kernel without compiling it.
struct Lookup {
  cache::Digest key{};      ///< that it has, or would have
  std::string toolchain{};  ///< that the key was made with
  bool found = false;       ///< in this process or in the store, verified
};

/// What a sealed Runtime does with a request for a kernel that is not in this process yet.
enum class OnMiss : unsigned char {
  allow,   ///< warn, and find or compile it here and now
  refuse,  ///< ErrorCode::sealed
  /// ErrorCode::not_ready at once, and build it meanwhile, as many at a time as there are jobs;
  /// later requests get it.
  build_later,
};

struct SealPolicy {
  OnMiss on_miss = OnMiss::refuse;
  /// Decides in place of `on_miss`, if it is set. It gets the error that names the key, the nearest
  /// one that is warmed, and the fields that differ; on the thread that asks, and must not throw.
  std::function<OnMiss(const Error& miss)> ask{};
};

/// Times by the upper bounds of their buckets, in seconds; the last bucket is for all that is more.
struct TimeHistogram {
  static constexpr std::array kBounds = {0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0};
  std::array<std::uint64_t, kBounds.size() + 1> counts{};
  std::uint64_t microseconds = 0;  ///< the sum of all
  bool operator==(const TimeHistogram&) const = default;
};

/// What a Runtime has done so far. A hit on a warm handle is not counted, to keep it cheap.
struct RuntimeCounters {
  std::uint64_t compiles = 0;  ///< that succeeded
  std::uint64_t failed_compiles = 0;
  std::uint64_t disk_hits = 0;        ///< in the writable cache directory
  std::uint64_t lower_tier_hits = 0;  ///< in read-only caches; cache_counters() tells them apart
  std::uint64_t remote_hits = 0;      ///< in the remote cache
  std::uint64_t disk_misses = 0;
  std::uint64_t damaged_entries = 0;
  std::uint64_t failed_stores = 0;
  std::uint64_t module_loads = 0;
  std::uint64_t waits = 0;          ///< for another thread or process that compiled the kernel
  std::uint64_t late_requests = 0;  ///< for a kernel that was not warmed up, after the seal
  std::uint64_t late_compiles = 0;  ///< of these, those that the seal let through
  std::uint64_t compiled_bytes = 0;
  std::uint64_t disk_bytes = 0;   ///< of the hits
  std::uint64_t descriptors = 0;  ///< in use now
  TimeHistogram compile_time{};
  TimeHistogram verify_time{};  ///< of disk hits: reading and checking
  bool operator==(const RuntimeCounters&) const = default;
};

/// The counters in the text form that Prometheus reads, under names that begin with "kiln_".
KILN_API std::string to_prometheus(const RuntimeCounters& counters);

class KILN_API Runtime {
 public:
  struct KILN_HIDDEN State;  // private to the library

  /// Opens no file but the few that tell which NVRTC is installed; loads nothing.
  /// Errors  invalid_argument for a source directory that is none, an empty include root, and a
  ///         relative directory where there is no working directory.
  static Result<Runtime> open(RuntimeOptions options);
  Runtime(Runtime&&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;
  /// Stops the compiles that a warmup or a late request has left behind, and waits for them; NVRTC
  /// may take seconds to give one back.
  ~Runtime();

  /// Adds a file that programs may include by `name`. The same text again is fine.
  /// Errors  invalid_argument for a bad name or another text under a known name.
  Status add_source(std::string_view name, std::string_view text);
  Status add_sources(std::span<const SourceText> sources);

  /// Registers a kernel; compiles nothing. An equal spec gives the same id.
  /// Errors  invalid_argument for an unknown source or include, a bad key field or option;
  ///         not_cacheable where the inputs cannot all be known and UnknownInputs::refuse is set;
  ///         unsupported beyond the 65,536 kernels that a Runtime holds.
  Result<KernelId> add(const KernelSpec& spec);

  /// Compiles or finds everything that is registered, in parallel, and loads it as deep as
  /// `options.depth` says. A kernel that fails is in the report and does not stop the others.
  /// Errors  invalid_argument for a bad architecture, too many jobs, or a group that names a kernel
  ///         which is not registered; unsupported for an architecture that cannot be; no_device
  ///         when no architecture is named and none found, or when what the depth asks for needs a
  ///         device or a context that is not there.
  Result<WarmupReport> warmup(const WarmupOptions& options = {});

  /// Whether the last warmup has brought all of the group as deep as it was asked to; true group by
  /// group while it runs. An empty name stands for all of it. False for an unknown name.
  bool ready_for(std::string_view group = {}) const;

  /// From now on get() and artifact() treat a kernel that is not in this process yet as `policy`
  /// says: to be called when a server is ready. A warmup goes on as before. While the calling
  /// thread captures a stream that is ordered with the legacy stream (of others the driver does not
  /// tell), such a request is refused whatever the policy. Called again, it replaces the policy.
  void seal(SealPolicy policy = {});

  /// The kernels that were asked for so far, with their sources; of nothing where
  /// RuntimeOptions::record_file is empty.
  Recording recording() const;

  /// The kernel for the current context's device. After a warmup this is a lock-free read; before,
  /// it compiles or finds, and loads.
  /// Errors  as artifact(); no_device without a driver or a context, or after a fork; unsupported
  ///         for a driver that is too old for the code; capture_active in the middle of a capture,
  ///         for a kernel that is not loaded yet; driver_failed.
  Result<Kernel> get(KernelId id);
  /// The same for the device `ordinal`, whose context must be current only when it is not loaded
  /// yet.
  Result<Kernel> get(KernelId id, int ordinal);

  /// The compiled kernel for an architecture, found or compiled now; needs no driver.
  /// Errors  Take another kernel: unsupported for an architecture that this one, its options or
  ///         NVRTC do not take; compile_failed, with the whole log; no_toolchain for a kernel that
  ///         is not in the cache, without a compiler that could make it.
  ///         Ask again later: not_ready beyond RuntimeOptions::compile_limit, while it is built on;
  ///         sealed and not_ready as the policy of seal() says.
  ///         Mend the program: invalid_argument for an unknown id or a bad architecture; what add()
  ///         gives, and io_failed, for files that have changed since or change meanwhile.
  Result<Artifact> artifact(KernelId id, std::string_view architecture);

  /// Whether artifact() would compile; neither compiles, nor locks, nor writes.
  /// Errors  as artifact(), up to the look-up.
  Result<Lookup> look_up(KernelId id, std::string_view architecture);

  /// As look_up(), but what the cache does not have it gets of the remote cache, where that has it;
  /// compiles nothing. Waits while another host of the fleet compiles it.
  /// Errors  as look_up().
  Result<Lookup> fetch(KernelId id, std::string_view architecture);

  /// Sends what look_up() finds to the remote cache, later on and by another thread. Waits while
  /// there is no room for it among those that are to be sent.
  /// Errors  as look_up(); io_failed when it finds nothing, that cannot be read, or no room comes;
  ///         invalid_argument without a remote cache, or without a key to sign with.
  Status send(KernelId id, std::string_view architecture);

  /// Waits until all that was compiled or sent has arrived at the remote cache.
  /// Errors  io_failed when some has not, when it takes longer than `longest`, or when `stop` asks
  ///         for an end.
  Status flush(std::chrono::milliseconds longest, const std::stop_token& stop = {});

  /// Why look_up() does not find it: the nearest entry and what of the key differs, or which check
  /// refused the entry. Reads every entry of the store, and writes nothing.
  /// Errors  as look_up(); io_failed when the store cannot be read.
  Result<Explanation> explain(KernelId id, std::string_view architecture);

  /// The devices of this machine; empty without a driver.
  std::vector<DeviceInfo> devices();
  /// Errors  no_device when there is no driver or no such device.
  Result<DeviceInfo> device(int ordinal = 0);

  LaunchPool& launches() noexcept;

  /// Errors  no_device when there is no driver; after a fork.
  Result<TensorMapBuilder> tensor_map_builder();
  /// `count` maps in the memory of the current context's device, not yet written.
  /// Errors  invalid_argument for none; no_device; driver_failed when memory is short. Not during
  ///         a capture, which an allocation would spoil.
  Result<TensorMapArray> tensor_map_array(std::size_t count);

  RuntimeCounters counters() const noexcept;
  /// Of the store: each tier, and what could not be stored; all zero without a cache.
  cache::StoreCounters cache_counters() const;
  const RuntimeOptions& options() const noexcept;

 private:
  explicit Runtime(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace kiln
