// What a Runtime has done so far.
//
// Threads: each count is atomic; counts read together need not belong to one instant.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "kiln/runtime.hpp"

namespace kiln {

class TimeCounter {
 public:
  void add(std::chrono::nanoseconds time) noexcept {
    const auto& bounds = TimeHistogram::kBounds;
    const auto bucket =
        std::lower_bound(bounds.begin(), bounds.end(), std::chrono::duration<double>(time).count());
    counts_[static_cast<std::size_t>(bucket - bounds.begin())].fetch_add(1,
                                                                         std::memory_order_relaxed);
    microseconds_.fetch_add(static_cast<std::uint64_t>(time.count() / 1000),
                            std::memory_order_relaxed);
  }
  TimeHistogram snapshot() const noexcept {
    TimeHistogram histogram{.microseconds = microseconds_};
    for (std::size_t i = 0; i < counts_.size(); ++i) histogram.counts[i] = counts_[i];
    return histogram;
  }

 private:
  std::array<std::atomic<std::uint64_t>, TimeHistogram::kBounds.size() + 1> counts_{};
  std::atomic<std::uint64_t> microseconds_{0};
};

struct Counters {
  std::atomic<std::uint64_t> compiles{0};
  std::atomic<std::uint64_t> failed_compiles{0};
  std::atomic<std::uint64_t> disk_hits{0};
  std::atomic<std::uint64_t> lower_tier_hits{0};
  std::atomic<std::uint64_t> remote_hits{0};
  std::atomic<std::uint64_t> disk_misses{0};
  std::atomic<std::uint64_t> damaged_entries{0};
  std::atomic<std::uint64_t> failed_stores{0};
  std::atomic<std::uint64_t> module_loads{0};
  std::atomic<std::uint64_t> waits{0};
  std::atomic<std::uint64_t> late_requests{0};
  std::atomic<std::uint64_t> late_compiles{0};
  std::atomic<std::uint64_t> compiled_bytes{0};
  std::atomic<std::uint64_t> disk_bytes{0};
  TimeCounter compile_time;
  TimeCounter verify_time;

  RuntimeCounters snapshot(std::uint64_t descriptors) const noexcept {
    return {.compiles = compiles,
            .failed_compiles = failed_compiles,
            .disk_hits = disk_hits,
            .lower_tier_hits = lower_tier_hits,
            .remote_hits = remote_hits,
            .disk_misses = disk_misses,
            .damaged_entries = damaged_entries,
            .failed_stores = failed_stores,
            .module_loads = module_loads,
            .waits = waits,
            .late_requests = late_requests,
            .late_compiles = late_compiles,
            .compiled_bytes = compiled_bytes,
            .disk_bytes = disk_bytes,
            .descriptors = descriptors,
            .compile_time = compile_time.snapshot(),
            .verify_time = verify_time.snapshot()};
  }
};

}  // namespace kiln
