// How a kernel is launched: grid, block, cluster, shared memory, and the attributes of the driver's
// launch call that a serving engine uses. A value with defaults that mean "as the driver does it".
//
// Threads: values.
#pragma once

#include <cstddef>
#include <optional>

#include "kiln/cuda_types.hpp"

namespace kiln {

struct Extent {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  bool operator==(const Extent&) const = default;
};

/// Programmatic dependent launch (PDL).
enum class Overlap : unsigned char {
  no,   ///< starts when the kernel before it in the stream has ended
  yes,  ///< may start before; the kernel's own wait orders it. Refused where the code has no wait
  /// May start before although its code has no wait: for kernels that touch nothing of what the
  /// kernels before them write. Nothing checks that.
  yes_without_wait,
};

/// How the clusters of a grid are spread over the device.
enum class ClusterScheduling : unsigned char { driver_default, spread, load_balancing };

/// Memory-synchronisation domain: fences of one do not wait for writes of the other.
enum class MemoryDomain : unsigned char { stream_default, local, remote };

/// What the L2 cache does with an access inside or outside of an AccessWindow.
enum class CachePolicy : unsigned char { normal, streaming, persisting };

/// A range of memory whose accesses the L2 cache treats as told.
struct AccessWindow {
  void* base = nullptr;
  std::size_t bytes = 0;  ///< 0: no window
  float hit_ratio = 1;    ///< share of the accesses inside that get `hits`, from 0 to 1
  CachePolicy hits = CachePolicy::persisting;
  CachePolicy misses = CachePolicy::streaming;
};

/// An event that fires when every block of the launch has triggered it, by
/// griddepcontrol.launch_dependents or, if so told, as it starts.
struct ProgrammaticEvent {
  CUevent event = nullptr;  ///< made without timing; null: none
  bool at_block_start = false;
};

struct LaunchShape {
  /// In blocks, with clusters or without; a multiple of the cluster in each dimension. With a 0 in
  /// it the launch is an empty batch: it does nothing and succeeds.
  Extent grid_blocks{};
  Extent block_threads{};
  /// {1, 1, 1}: none, or what the kernel was compiled with. More than 8 blocks in all are not
  /// portable: they run where this device has room for them.
  Extent cluster_blocks{};
  /// A multiple of `cluster_blocks` that the device groups blocks into where it can; {1, 1, 1}:
  /// none.
  Extent preferred_cluster_blocks{};
  /// Dynamic shared memory of a block, in bytes.
  unsigned shared_bytes = 0;
  /// What comes after the last store is the author's duty: a kernel that triggers its dependents
  /// (griddepcontrol.launch_dependents) before its last store relies on their wait.
  Overlap overlap_previous = Overlap::no;
  /// All blocks are resident at once, so that they can wait for one another.
  bool cooperative = false;
  ClusterScheduling cluster_scheduling = ClusterScheduling::driver_default;
  MemoryDomain memory_domain = MemoryDomain::stream_default;
  /// Instead of the stream's; smaller is more urgent. The driver clamps it.
  std::optional<int> priority{};
  AccessWindow access_window{};
  ProgrammaticEvent programmatic_event{};
  /// Fires when all blocks have started; made without timing; null: none.
  CUevent launch_completion_event = nullptr;
  /// Wish for the part of the L1 cache that serves as shared memory, in percent.
  std::optional<unsigned> shared_carveout_percent{};
};

}  // namespace kiln
