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
#include "kiln/device_info.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel.hpp"
#include "kiln/kernel_spec.hpp"
#include "kiln/launch.hpp"
#include "kiln/options.hpp"
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

/// What a Runtime has done so far. A hit on a warm handle is not counted, to keep it cheap.
struct RuntimeCounters {
  std::uint64_t compiles = 0;  ///< that succeeded
  std::uint64_t failed_compiles = 0;
  std::uint64_t disk_hits = 0;
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

  /// Compiles or finds everything that is registered, in parallel, and loads it as deep as
  /// `options.depth` says. A kernel that fails is in the report and does not stop the others.
  /// Errors  invalid_argument for a bad architecture, too many jobs, or a group that names a kernel
  ///         which is not registered; no_device when no architecture is named and none found, or
  ///         when what the depth asks for needs a device or a context that is not there.
  Result<WarmupReport> warmup(const WarmupOptions& options = {});

  /// Whether the last warmup has brought all of the group as deep as it was asked to; true group by
  /// group while it runs. An empty name stands for all of it. False for an unknown name.
  bool ready_for(std::string_view group = {}) const;

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
  const RuntimeOptions& options() const noexcept;

 private:
  explicit Runtime(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace kiln
