// Launching: a launch as a value, prepared once at a fixed address, launched many times.
//
// A LaunchDescriptor is a lease on a slot of a LaunchPool; the slot holds the driver's launch
// structure, its attributes and the packed arguments, and never moves.
// Threads: LaunchPool from any thread. One descriptor by one thread at a time (a debug build of
// Kiln answers a second one with an error); different descriptors at once share nothing. Lifetime:
// a descriptor keeps its kernel and its pool's memory alive.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include "kiln/cache/api.hpp"
#include "kiln/cuda_types.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel.hpp"
#include "kiln/launch_shape.hpp"

namespace kiln {

struct TensorMap;

/// One kernel argument: its bytes, copied at once.
struct Argument {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool is_tensor_map = false;  ///< by value, so the parameter must be aligned as TMA wants it
};

/// What is passed by value. No array: a kernel has no parameter of one, and where <<<>>> would pass
/// its address its bytes would go in place of that; give a pointer, or a struct that holds it.
template <class T>
concept ArgumentValue = std::is_trivially_copyable_v<T> && !std::is_array_v<T>;

/// A launch that was captured into a CUDA graph: the node that it became. A plain handle into the
/// graph that the capture gave, which must be kept for update() and set_enabled() even when only
/// instances of it are launched.
struct CapturedLaunch {
  CUgraphNode node = nullptr;
  Extent cluster_blocks{};  ///< that it was captured with, and keeps
  CUkernel kernel = nullptr;
};

class KILN_API LaunchDescriptor {
 public:
  struct KILN_HIDDEN Slot;  // private to the library

  LaunchDescriptor() noexcept = default;
  LaunchDescriptor(LaunchDescriptor&& other) noexcept;
  LaunchDescriptor& operator=(LaunchDescriptor&& other) noexcept;
  ~LaunchDescriptor();
  explicit operator bool() const noexcept { return slot_ != nullptr; }

  // Everything below requires a descriptor, not an empty one.

  /// Enqueues the kernel in the current context, or captures it: then the graph, its clones and its
  /// instances keep the kernel for as long as they live. `stream` goes to the driver as it
  /// is: null is the legacy default stream, and the special handles pass through. That holds for
  /// callers built with CUDA_API_PER_THREAD_DEFAULT_STREAM, or its like, as well: what their own
  /// calls of CUDA mean by 0 is CU_STREAM_PER_THREAD here.
  /// Two driver calls, one of which asks whether the stream is being captured; no lock of ours, and
  /// outside a capture no memory.
  /// Errors  driver_failed with the driver's result; capture_active for the legacy stream while
  ///         another stream of the context is being captured; no_device after a fork.
  Status launch(CUstream stream) noexcept;

  /// Replaces argument `index`, counted from 0 in the order of the kernel's parameters.
  /// Errors  invalid_argument when there is no such argument or its size is another one.
  template <ArgumentValue T>
  Status set_argument(std::size_t index, const T& value) noexcept {
    return set_argument_bytes(index, &value, sizeof(T));
  }
  Status set_argument_bytes(std::size_t index, const void* data, std::size_t bytes) noexcept;

  /// Errors  as prepare(), for the grid. A grid with a 0 in it makes the launch do nothing.
  Status set_grid(Extent grid_blocks) noexcept;
  /// The driver is asked whether it fits, so a context of the kernel's device must be current.
  /// Errors  as prepare(), for the cluster.
  Status set_cluster(Extent cluster_blocks) noexcept;
  /// Both at once, for grids that the old cluster does not divide; on an error neither is changed.
  /// The driver is asked only for another cluster. Errors  as prepare(), for grid and cluster.
  Status set_grid_and_cluster(Extent grid_blocks, Extent cluster_blocks) noexcept;

  /// launch(), and the graph node that it became. `stream` must be capturing. The node keeps what
  /// the descriptor has now: shape and attributes with the events and the access window among them,
  /// and the arguments' bytes with every device address in them, that of a tensor map's tensor
  /// included. Of a map by pointer it keeps the slot's address; what lies there may change.
  /// update() replaces the grid and the arguments.
  /// Errors  as launch(); invalid_argument when the stream is not capturing or the grid is empty.
  Result<CapturedLaunch> capture(CUstream stream) noexcept;
  /// Gives the node in `graph`, an instance of the graph that `captured` belongs to, the grid and
  /// the arguments that this descriptor has now; the cluster and the other attributes stay as they
  /// were captured. The next launch of the graph uses them. Needs the device's context current.
  /// An instance that cuGraphExecUpdate gave another graph's nodes keeps that one's kernels.
  /// Errors  driver_failed; no_device after a fork; invalid_argument for an empty grid (disable the
  ///         node instead), for a node of another kernel, which the graph would not keep, and where
  ///         the cluster is another one by now.
  Status update(CUgraphExec graph, CapturedLaunch captured) noexcept;
  /// Whether the node runs in the next launches of `graph`. Errors  driver_failed; no_device.
  Status set_enabled(CUgraphExec graph, CapturedLaunch captured, bool enabled) noexcept;

  /// That of the kernel: what launch() needs a context of.
  int device() const noexcept;

  /// The arguments as the kernel finds them: at the offsets of its own parameter table.
  std::span<const std::byte> packed_arguments() const noexcept;

 private:
  friend class LaunchPool;
  class KILN_HIDDEN Use;
  LaunchDescriptor(Slot* slot, std::shared_ptr<void> pool) noexcept;
  Status fit_to_device() noexcept;
  Status store_grid(const Extent& grid) noexcept;
  Status store_cluster(const Extent& cluster, const Extent& grid) noexcept;
  Status check_capture(CUstream stream) const noexcept;
  Status keep_in_graph_of(CUstream stream) const noexcept;
  Slot* slot_ = nullptr;
  unsigned lease_ = 0;  // of the slot when this was made; a debug build compares them
  std::shared_ptr<void> pool_;
};

/// How much of a LaunchPool is in use, in descriptors.
struct LaunchPoolUsage {
  std::size_t capacity = 0;
  std::size_t in_use = 0;
  std::size_t high_water = 0;
};

class KILN_API LaunchPool {
 public:
  class KILN_HIDDEN State;  // private to the library

  LaunchPool();
  // One pool behind all copies, and behind what was moved from as well.
  LaunchPool(const LaunchPool&) = default;
  LaunchPool& operator=(const LaunchPool&) = default;

  /// Makes room for `descriptors` in all, those in use included, of up to `argument_bytes` each
  /// (at most 32 764, which is all that a kernel can have), so that preparing them takes no memory
  /// and no lock. A kernel of more than 64 parameters counts as one of 4 KiB, of more than 512 as
  /// one of 32 KiB. A pool begins with 64 of 512 bytes, grows by as much as it has, the larger ones
  /// from 16 (of 4 KiB) and 1 (more), and never shrinks. prepare() does not grow it while a stream
  /// of the context is being captured.
  /// Errors  invalid_argument for too large arguments or more than a million descriptors.
  Status reserve(std::size_t descriptors, std::size_t argument_bytes = 512);
  LaunchPoolUsage usage() const noexcept;

  /// Prepares a launch of `kernel` in the current context, which must be of its device; the
  /// kernel's code is loaded into that context unless it is there. What can be wrong with a launch
  /// is found here, with the numbers, before the driver is asked.
  /// Errors  invalid_argument for a shape or argument list that does not fit the kernel or the
  ///         device; no_device where another context is current, or none; unsupported for
  ///         Overlap::yes on a kernel without a wait, a cluster that this device has no room for,
  ///         an attribute that the driver is too old for, and __block_size__ with a cluster;
  ///         capture_active where the code would have to be loaded, or the pool to grow, in the
  ///         middle of a capture.
  Result<LaunchDescriptor> prepare(const Kernel& kernel, const LaunchShape& shape,
                                   std::span<const Argument> arguments);

  /// The same with the arguments in the order of the kernel's parameters, each of exactly the
  /// parameter's type.
  template <ArgumentValue... Args>
  requires(!(std::is_convertible_v<const Args&, std::span<const Argument>> ||
             ...)) Result<LaunchDescriptor> prepare(const Kernel& kernel, const LaunchShape& shape,
                                                    const Args&... arguments) {
    const std::array<Argument, sizeof...(Args)> list{
        Argument{&arguments, sizeof(Args), std::is_same_v<Args, TensorMap>}...};
    return prepare(kernel, shape, std::span<const Argument>(list));
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace kiln
