// Launching: a launch as a value, prepared once at a fixed address, launched many times.
//
// A LaunchDescriptor is a lease on a slot of a LaunchPool; the slot holds the driver's launch
// structure, its attributes and the packed arguments, and never moves.
// Threads: LaunchPool from any thread. One descriptor by one thread at a time; different
// descriptors at once share nothing. Lifetime: a descriptor keeps its kernel and its pool's memory
// alive.
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

namespace kiln {

struct Extent {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  bool operator==(const Extent&) const = default;
};

/// Programmatic dependent launch.
enum class Overlap : unsigned char {
  no,   ///< starts when the kernel before it in the stream has ended
  yes,  ///< may start before; the kernel's own wait orders it. Refused where the code has no wait
};

struct LaunchShape {
  /// In blocks, with clusters or without; a multiple of `cluster_blocks` in each dimension.
  Extent grid_blocks{};
  Extent block_threads{};
  /// {1, 1, 1}: no cluster attribute.
  Extent cluster_blocks{};
  /// Dynamic shared memory of a block, in bytes.
  unsigned shared_bytes = 0;
  Overlap overlap_previous = Overlap::no;
};

/// One kernel argument: its bytes, copied at once.
struct Argument {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

class KILN_API LaunchDescriptor {
 public:
  LaunchDescriptor() noexcept = default;
  LaunchDescriptor(LaunchDescriptor&& other) noexcept;
  LaunchDescriptor& operator=(LaunchDescriptor&& other) noexcept;
  ~LaunchDescriptor();
  explicit operator bool() const noexcept { return slot_ != nullptr; }

  /// Enqueues the kernel in the current context. `stream` goes to the driver as it is: null is the
  /// legacy default stream, and the special handles pass through.
  /// Requires a descriptor. Allocates nothing, takes no lock of ours.
  /// Errors  driver_failed with the driver's result; after a fork, no_device.
  Status launch(CUstream stream) noexcept;

  /// Replaces argument `index`, counted from 0 in the order of the kernel's parameters.
  /// Errors  invalid_argument when there is no such argument or its size is another one.
  template <class T>
  Status set_argument(std::size_t index, const T& value) noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    return set_argument_bytes(index, &value, sizeof(T));
  }
  Status set_argument_bytes(std::size_t index, const void* data, std::size_t bytes) noexcept;

  /// Errors  invalid_argument for a zero or a grid that the cluster does not divide.
  Status set_grid(Extent grid_blocks) noexcept;

 private:
  friend class LaunchPool;
  struct KILN_HIDDEN Slot;
  LaunchDescriptor(Slot* slot, std::shared_ptr<void> pool) noexcept
      : slot_(slot), pool_(std::move(pool)) {}
  Slot* slot_ = nullptr;
  std::shared_ptr<void> pool_;
};

class KILN_API LaunchPool {
 public:
  LaunchPool();

  /// Prepares a launch of `kernel` in its device's current context.
  /// Errors  invalid_argument for a shape or argument list that does not fit the kernel, with both
  ///         numbers; unsupported for Overlap::yes on a kernel without a wait.
  Result<LaunchDescriptor> prepare(const Kernel& kernel, const LaunchShape& shape,
                                   std::span<const Argument> arguments);

  /// The same with the arguments in the order of the kernel's parameters, each of exactly the
  /// parameter's type.
  template <class... Args>
  requires(!(std::is_convertible_v<const Args&, std::span<const Argument>> ||
             ...)) Result<LaunchDescriptor> prepare(const Kernel& kernel, const LaunchShape& shape,
                                                    const Args&... arguments) {
    static_assert((std::is_trivially_copyable_v<Args> && ...));
    const std::array<Argument, sizeof...(Args)> list{Argument{&arguments, sizeof(Args)}...};
    return prepare(kernel, shape, std::span<const Argument>(list));
  }

 private:
  friend class LaunchDescriptor;
  struct KILN_HIDDEN State;
  std::shared_ptr<State> state_;
};

}  // namespace kiln
