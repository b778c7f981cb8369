// A loaded kernel.
//
// Threads: copy and use from any thread. Lifetime: a Kernel keeps its library loaded and outlives
// the Runtime that made it; keep one for as long as a graph that captured it.
#pragma once

#include <memory>
#include <string_view>

#include "kiln/artifact.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/cuda_types.hpp"

namespace kiln {

class LoadedKernel;

class KILN_API Kernel {
 public:
  Kernel() noexcept = default;
  explicit operator bool() const noexcept { return loaded_ != nullptr; }

  /// Requires a kernel. The driver's handle, valid in every context of its device.
  CUkernel handle() const noexcept;
  /// Requires a kernel.
  const ArtifactFacts& facts() const noexcept;
  /// Requires a kernel. The device that it was prepared for.
  int device() const noexcept;

 private:
  friend class LoadedKernel;
  friend class LaunchPool;
  explicit Kernel(std::shared_ptr<const LoadedKernel> loaded) noexcept
      : loaded_(std::move(loaded)) {}
  std::shared_ptr<const LoadedKernel> loaded_;
};

}  // namespace kiln
