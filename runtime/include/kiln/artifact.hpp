// What a compile gives: a cubin and the facts about it.
//
// Threads: a value; never changes once made.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kiln/cache/digest.hpp"

namespace kiln {

/// What the assembler used for the kernel, per thread or per block.
struct ResourceUsage {
  unsigned registers = 0;            ///< per thread
  unsigned static_shared_bytes = 0;  ///< per block
  unsigned local_bytes = 0;          ///< per thread, stack included
  unsigned spill_store_bytes = 0;    ///< per thread
  unsigned spill_load_bytes = 0;     ///< per thread
  bool operator==(const ResourceUsage&) const = default;
};

/// Where an argument lies in the kernel's parameter space.
///
/// The offset counts from where the parameters begin in the constant bank, and that address
/// differs: 0x160 before sm_90, 0x210 on sm_90, 0x380 from sm_100 on. A parameter is aligned by its
/// address, so a first argument aligned to 128 has offset 32, 112 and 0 there.
struct KernelParameter {
  unsigned offset = 0;
  unsigned bytes = 0;
  bool operator==(const KernelParameter&) const = default;
};

/// What the source fixes or limits about every launch. Three numbers are x, y, z; zeros: it does
/// not say.
struct LaunchBounds {
  unsigned max_threads = 0;                  ///< in a block: __launch_bounds__
  std::array<unsigned, 3> block_threads{};   ///< the only block: __block_size__
  std::array<unsigned, 3> cluster_blocks{};  ///< the only cluster: __cluster_dims__
  unsigned max_cluster_blocks = 0;           ///< in a cluster: the third of __launch_bounds__
  /// __block_size__: the driver takes the grid for a number of clusters, of one block each where it
  /// gives no cluster; with a larger one the kernel is not launched. Read from the cubin, not
  /// stored.
  bool grid_counts_clusters = false;
  bool operator==(const LaunchBounds&) const = default;
};

struct ArtifactFacts {
  std::string kernel{};        ///< KernelSpec::name
  std::string architecture{};  ///< with suffix
  std::string symbol{};        ///< the lowered name of the kernel inside the cubin
  std::string toolchain{};     ///< the compiler's identity in one line
  ResourceUsage usage{};
  std::vector<KernelParameter> parameters{};  ///< in order
  unsigned parameter_bytes = 0;               ///< of all, with the gaps between them
  LaunchBounds bounds{};
  /// The kernel's machine code, or that of a function it may call, holds a wait on the grids before
  /// it (griddepcontrol.wait), so it may be launched with Overlap::yes. Not that every path waits.
  bool waits_on_grid = false;
  /// The same of the trigger that lets the next grid start (griddepcontrol.launch_dependents).
  bool triggers_dependents = false;
  /// The compiler's warnings, whole; empty for most kernels. A hit shows them in the facts but does
  /// not log them again.
  std::string log{};
};

struct Artifact {
  cache::Digest key{};
  ArtifactFacts facts{};
  /// The cubin; `owner` keeps its bytes alive.
  const std::byte* cubin = nullptr;
  std::size_t cubin_bytes = 0;
  std::shared_ptr<const void> owner{};
};

}  // namespace kiln
