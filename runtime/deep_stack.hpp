// A stack that a compiler has room on, whatever thread asks.
//
// NVRTC goes as deep as the program nests, and one that finds no room ends the process: threads of
// a JVM have 1 MiB, fibers less.
// Threads: any.
#pragma once

#include <cstddef>
#include <functional>

namespace kiln {

/// Of the thread that is made.
inline constexpr std::size_t kDeepStackBytes = std::size_t{16} << 20;

/// Runs `work` here where there is room, and else on a thread made for it; here too if none can be
/// made.
void on_deep_stack(const std::function<void()>& work);

}  // namespace kiln
