// What stands behind a LaunchDescriptor: everything that the driver reads at a launch, at one
// address that never changes. The first cache lines are what a launch touches.
//
// Threads: one slot by one thread at a time; `next_free` belongs to the pool.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kiln/error.hpp"
#include "kiln/launch.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln {

/// Debug builds answer misuse of a descriptor with an error; release builds do not look.
#ifdef NDEBUG
inline constexpr bool kChecksUse = false;
#else
inline constexpr bool kChecksUse = true;
#endif

inline constexpr std::size_t kSlotAlignment = 128;
/// More than LaunchShape can ask for.
inline constexpr std::size_t kMostLaunchAttributes = 12;

struct alignas(kSlotAlignment) LaunchDescriptor::Slot {
  CUlaunchConfig config{};
  decltype(&::cuLaunchKernelEx) launch = nullptr;
  decltype(&::cuStreamIsCapturing) is_capturing = nullptr;
  CUfunction function = nullptr;
  void** packed = nullptr;  // `packed_arguments`; null for a kernel without parameters
  unsigned fork_generation = 0;
  bool empty_grid = false;

  // Names `arguments` to the driver as one buffer, which it copies faster than one argument after
  // another.
  std::array<void*, 5> packed_arguments{};
  std::size_t packed_bytes = 0;

  std::array<CUlaunchAttribute, kMostLaunchAttributes> attributes{};

  std::byte* arguments = nullptr;   // kSlotAlignment, at the offsets of the parameter table
  void** argument_table = nullptr;  // into `arguments`, by parameter
  std::shared_ptr<const LoadedKernel> kernel{};
  /// The grid must be a multiple of it; {1, 1, 1} without clusters.
  Extent cluster{};
  /// Of a cooperative launch; else no limit of ours.
  std::uint64_t most_resident_blocks = UINT64_MAX;
  Extent preferred_cluster{};
  bool cooperative = false;
  CUlaunchAttribute* cluster_attribute = nullptr;  // null: prepared without a cluster

  std::uint32_t index = 0;  // in its size class
  std::uint8_t size_class = 0;
  std::atomic<std::uint32_t> next_free{0};
  std::atomic<unsigned> lease{0};  // counts how often it was given out and back
  std::atomic<bool> in_use_now{false};
};

// Marks a descriptor as in use by this thread. Empty in release builds.
class LaunchDescriptor::Use {
 public:
  explicit Use(const LaunchDescriptor& descriptor) noexcept {
    if constexpr (kChecksUse) {
      auto* slot = descriptor.slot_;
      if (slot == nullptr || slot->lease.load() != descriptor.lease_)
        fault_ = "an empty descriptor, or one whose slot was given back, is used";
      else if (slot->in_use_now.exchange(true, std::memory_order_acquire))
        fault_ = "a descriptor is used by two threads at once; give each thread its own";
      else
        slot_ = slot;
    }
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    if constexpr (kChecksUse)
      if (slot_ != nullptr) slot_->in_use_now.store(false, std::memory_order_release);
  }
  explicit operator bool() const noexcept { return !kChecksUse || fault_ == nullptr; }
  Error error() const { return Error(ErrorCode::invalid_argument, fault_); }

 private:
  [[maybe_unused]] Slot* slot_ = nullptr;
  const char* fault_ = nullptr;
};

}  // namespace kiln
