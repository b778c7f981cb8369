// What leaves nothing of what was there in L2: a kernel that writes more than L2 holds.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string_view>

#include "kiln/runtime.hpp"
#include "tests/bench/report.hpp"

namespace kiln::bench {

inline constexpr std::size_t kFlushBytes = std::size_t{256} << 20;

/// A launch of it over `memory`, kFlushBytes on the device. Adds a source of the name "flush.cu".
inline LaunchDescriptor prepare_flush(Runtime& runtime, std::uint64_t memory) {
  constexpr std::string_view kSource = R"(
struct alignas(16) Piece { unsigned x, y, z, w; };
extern "C" __global__ void __launch_bounds__(256)
entry(Piece* to, unsigned pieces) {
  for (unsigned i = blockIdx.x * 256 + threadIdx.x; i < pieces; i += gridDim.x * 256)
    to[i] = {i, i, i, i};
}
)";
  must(runtime.add_source("flush.cu", kSource));
  const auto id = must(runtime.add({.name = "flush", .source = "flush.cu"}));
  return must(runtime.launches().prepare(must(runtime.get(id)),
                                         {.grid_blocks = {1056}, .block_threads = {256}}, memory,
                                         static_cast<unsigned>(kFlushBytes / 16)));
}

}  // namespace kiln::bench
