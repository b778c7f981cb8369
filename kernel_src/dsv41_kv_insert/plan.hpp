// From a problem and a device to a key and a launch shape, or why not. Pure arithmetic.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>

#include "kernel_src/dsv41_kv_insert/args.hpp"
#include "kernel_src/dsv41_kv_insert/key.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/device_info.hpp"
#include "kiln/launch.hpp"

namespace kiln::kernels::dsv41_kv_insert {

struct Problem {
  u32 heads = 0;  // live query heads of this rank; 0: no query part
  Record record = Record::fp8;
  u32 page_slots = 64;
  u32 ratio = 1;
  std::uint64_t tokens = 0;  // of one call; not part of the key
};

struct Plan {
  Key key{};
  LaunchShape shape{};         // zero blocks for zero tokens: nothing to launch
  u32 row_blocks = 0;          // Args::row_blocks
  u32 thread_pieces_log2 = 0;  // Args::thread_pieces_log2
};

/// Keeps the grid's x dimension inside the driver's limit with up to 32 blocks for a token.
inline constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 26;

/// The key of a problem, whatever its tokens.
constexpr Key key_of(const Problem& problem) {
  return {problem.heads, problem.record, problem.page_slots, problem.ratio};
}

/// The launch of `tokens` tokens, on any device: what a prepared launch needs anew for a call.
/// Requires a good key and at most kMostTokens.
KILN_API Plan plan_of(const Key& key, std::uint64_t tokens) noexcept;

/// Plans one call.
///
/// Shapes  query [tokens, heads, 512], rows [tokens, 512], records in pages of `page_slots`
/// Units   grid in blocks, block in threads, shared memory in bytes
/// Errors  invalid_argument for a field that has no kernel or too many tokens, with the limit;
///         unsupported for an architecture without grid dependencies (before sm_90)
/// Source  vLLM's DeepSeek-V4.1 cache writers; see NOTES.md
KILN_API Result<Plan> plan(const Problem& problem, const DeviceInfo& device);

}  // namespace kiln::kernels::dsv41_kv_insert
