// What a compile gives: a cubin and the facts about it.
//
// Threads: a value; never changes once made.
#pragma once

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

struct ArtifactFacts {
  std::string kernel{};        ///< KernelSpec::name
  std::string architecture{};  ///< with suffix
  std::string symbol{};        ///< the lowered name of the kernel inside the cubin
  std::string toolchain{};     ///< the compiler's identity in one line
  ResourceUsage usage{};
  /// The code holds a wait on the grid before it (griddepcontrol.wait), so it may be launched with
  /// Overlap::yes.
  bool waits_on_grid = false;
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
