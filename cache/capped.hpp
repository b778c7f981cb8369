// Durations that callers give as limits.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <chrono>

namespace kiln::cache {

/// At most ten years, which is no limit either: added to the time of day, or counted in
/// nanoseconds, milliseconds::max() would be over at once.
constexpr std::chrono::milliseconds capped(std::chrono::milliseconds limit) noexcept {
  return std::min<std::chrono::milliseconds>(limit, std::chrono::hours(24 * 3650));
}

}  // namespace kiln::cache
