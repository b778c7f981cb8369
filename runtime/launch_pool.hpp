// Slots in slabs that never move. Three size classes by the bytes of arguments; each grows by as
// many slots as it has. Taking and giving back a slot is a few atomic operations and no memory, but
// for growth.
//
// Threads: any member from any thread. A lease shares ownership of the State, so a pool may go
// before its leases.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/fork_mutex.hpp"
#include "runtime/launch_slot.hpp"

namespace kiln {

/// The driver's limit for the parameters of a kernel.
inline constexpr std::size_t kMostArgumentBytes = 32764;

class LaunchPool::State {
 public:
  using Slot = LaunchDescriptor::Slot;

  /// With room for the first descriptors.
  State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  /// A slot for `parameters` arguments that take `bytes` in all; null when none of that size is
  /// free.
  Slot* acquire(std::size_t bytes, std::size_t parameters) noexcept;
  /// The same, with more slots made if need be; null when there is no memory for them.
  Slot* grow_and_acquire(std::size_t bytes, std::size_t parameters);
  void release(Slot* slot) noexcept;
  Status reserve(std::size_t slots, std::size_t bytes);
  LaunchPoolUsage usage() const noexcept;

 private:
  // Slabs double the class, so that few of them are enough for ever.
  static constexpr std::size_t kMostSlabs = 26;

  struct SizeClass {
    std::size_t argument_bytes = 0;
    std::size_t parameters = 0;
    std::uint32_t first_slots = 0;  // of the first slab, a power of two

    /// Low half: index of the first free slot plus one; high half: changed by every exchange, so
    /// that a slot that was taken and given back meanwhile is noticed.
    std::atomic<std::uint64_t> free{0};
    std::array<std::atomic<std::byte*>, kMostSlabs> slabs{};
    std::atomic<std::size_t> capacity{0};
    ForkMutex growth{};

    std::size_t slot_bytes() const noexcept;
    Slot* at(std::uint32_t index) const noexcept;
    Slot* pop() noexcept;
    void push(Slot* slot) noexcept;
    bool grow(std::uint8_t number);
  };
  std::uint8_t class_of(std::size_t bytes, std::size_t parameters) const noexcept;
  Slot* lease(Slot* slot) noexcept;

  std::array<SizeClass, 3> classes_{SizeClass{512, 64, 64}, SizeClass{4096, 512, 16},
                                    SizeClass{32768, 32768, 1}};
  std::atomic<std::size_t> in_use_{0};
  std::atomic<std::size_t> high_water_{0};
};

}  // namespace kiln
