// The runtime: sources go in, launched kernels come out, compiled at most once per compile key for
// everyone who shares a cache directory.
//
//   open -> add_source -> add (compiles nothing) -> warmup -> get -> prepare -> launch
//
// Threads: every member from any thread. Devices: any number; a kernel is compiled per architecture
// and loaded per device. No driver is needed until get().
// Forks: a process may fork, and use CUDA in the child, until it has initialised CUDA itself. Here
// get(), device(), devices(), tensor maps and a warmup() that names no architecture do that; what
// takes an architecture does not, and installed_architectures() says which ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
#include "kiln/tensor_map.hpp"
#include "kiln/warmup.hpp"

namespace kiln {

/// A registered kernel of one Runtime.
struct KernelId {
  std::uint32_t index = UINT32_MAX;
  bool operator==(const KernelId&) const = default;
};

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

/// What a Runtime has done so far. A hit on a warm handle is not counted, to keep it cheap.
struct RuntimeCounters {
  std::uint64_t compiles = 0;  ///< that succeeded
  std::uint64_t failed_compiles = 0;
  std::uint64_t disk_hits = 0;        ///< in the writable cache directory
  std::uint64_t lower_tier_hits = 0;  ///< in the read-only ones; cache_counters() tells them apart
  std::uint64_t disk_misses = 0;
  std::uint64_t damaged_entries = 0;
  std::uint64_t failed_stores = 0;
  std::uint64_t module_loads = 0;
  bool operator==(const RuntimeCounters&) const = default;
};

class KILN_API Runtime {
 public:
  struct KILN_HIDDEN State;  // private to the library

  /// Opens no file but the few that tell which NVRTC is installed; loads nothing.
  /// Errors  invalid_argument for a source directory that is none, an empty include root, and a
  ///         relative directory where there is no working directory.
  static Result<Runtime> open(RuntimeOptions options);
  Runtime(Runtime&&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;
  ~Runtime();

  /// Adds a file that programs may include by `name`. The same text again is fine.
  /// Errors  invalid_argument for a bad name or another text under a known name.
  Status add_source(std::string_view name, std::string_view text);
  Status add_sources(std::span<const SourceText> sources);

  /// Registers a kernel; compiles nothing. An equal spec gives the same id.
  /// Errors  invalid_argument for an unknown source or include, a bad key field or option;
  ///         not_cacheable.
  Result<KernelId> add(const KernelSpec& spec);

  /// Compiles or finds everything that is registered, in parallel. A kernel that fails is in the
  /// report and does not stop the others. Where `options.architectures` is empty, the kernels are
  /// also loaded on the device whose context is current; on other devices at their first get().
  /// Errors  invalid_argument for a bad architecture; no_device when none is named and none found.
  Result<WarmupReport> warmup(const WarmupOptions& options = {});

  /// The kernel for the current context's device. After a warmup this is a lock-free read; before,
  /// it compiles or finds, and loads.
  /// Errors  no_device, and all that a compile can give.
  Result<Kernel> get(KernelId id);
  /// The same for the device `ordinal`, whose context must be current only when it is not loaded
  /// yet.
  Result<Kernel> get(KernelId id, int ordinal);

  /// The compiled kernel for an architecture; needs no driver.
  Result<Artifact> artifact(KernelId id, std::string_view architecture);

  /// Whether artifact() would compile; neither compiles, nor locks, nor writes.
  /// Errors  as artifact(), up to the look-up.
  Result<Lookup> look_up(KernelId id, std::string_view architecture);

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
