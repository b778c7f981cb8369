// A loaded kernel.
//
// Threads: copy and use from any thread. Lifetime: a Kernel keeps its library loaded and outlives
// the Runtime that made it. A graph that a launch of it was captured into keeps it too.
//
// Order of destruction: Runtime, LaunchPool, LaunchDescriptor, Kernel and graphs may go in any
// order. The last that holds a kernel unloads its library, after the work in the streams that uses
// it, which is the caller's to wait for. Captures go on unharmed, but for those under
// compute-sanitizer, which ends them itself. Where the last is a graph, the library is unloaded
// when the next Runtime is opened.
//   at exit         what goes after the driver is silent, so static objects may hold kernels
//   after a fork    the child's copies call no driver; launches and get() there are no_device
//   after a reset   of a context (cuDevicePrimaryCtxReset): what was allocated in it is gone, so
//                   TensorMapArrays, streams, events and graphs of it must go before. Kernels and
//                   descriptors stay: a launch in the context that comes after loads the code
//                   again or gives the driver's error. Runtime::warmup() loads it before that.
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
