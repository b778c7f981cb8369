// Remembers which numbers it has seen, for things to be done once each: a warning, a sweep.
//
// Threads: any. Fork: it holds no mutex, so a child never waits for a thread that it does not have.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kiln::cache {

template <std::size_t Capacity>
class OnceSet {
 public:
  /// True for the first call with `key`. Once the set is full, false for every new key: what is
  /// done once each is then done often enough.
  bool first_time(std::uint64_t key) noexcept {
    const std::uint64_t stored = key == kFree ? 1 : key;
    for (std::size_t probe = 0; probe < Capacity; ++probe) {
      std::uint64_t seen = kFree;
      auto& slot = slots_[(stored + probe) % Capacity];
      if (slot.compare_exchange_strong(seen, stored)) return true;
      if (seen == stored) return false;
    }
    return false;
  }

 private:
  static constexpr std::uint64_t kFree = 0;
  std::array<std::atomic<std::uint64_t>, Capacity> slots_{};
};

}  // namespace kiln::cache
