// What a Runtime has done so far.
//
// Threads: each count is atomic; counts read together need not belong to one instant.
#pragma once

#include <atomic>
#include <cstdint>

#include "kiln/runtime.hpp"

namespace kiln {

struct Counters {
  std::atomic<std::uint64_t> compiles{0};
  std::atomic<std::uint64_t> failed_compiles{0};
  std::atomic<std::uint64_t> disk_hits{0};
  std::atomic<std::uint64_t> lower_tier_hits{0};
  std::atomic<std::uint64_t> disk_misses{0};
  std::atomic<std::uint64_t> damaged_entries{0};
  std::atomic<std::uint64_t> failed_stores{0};
  std::atomic<std::uint64_t> module_loads{0};

  RuntimeCounters snapshot() const noexcept {
    return {compiles,    failed_compiles, disk_hits,     lower_tier_hits,
            disk_misses, damaged_entries, failed_stores, module_loads};
  }
};

}  // namespace kiln
