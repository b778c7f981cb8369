// From a problem and a device to a key and a launch shape, or why not. Pure arithmetic.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>

#include "kernel_src/dsv41_decode/args.hpp"
#include "kernel_src/dsv41_decode/key.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/device_info.hpp"
#include "kiln/kernel_spec.hpp"
#include "kiln/launch.hpp"

namespace kiln::kernels::dsv41_decode {

/// The launch of a call of `tokens` tokens; the token count is in no key.
struct Plan {
  Key key{};
  LaunchShape shape{};  // zero blocks for zero tokens: nothing to launch
};

/// The grid's y dimension.
inline constexpr std::uint64_t kMostTokens = 65535;

namespace swapab {

/// What the swap-AB program needs beyond check(key): 16 or 32 heads, a compressed list, and all
/// large tiles in a cluster of 8.
/// Errors  invalid_argument naming the field, its value and what is allowed.
KILN_API Status check_key(const Key& key);

/// What registers the program of `key`, which must be a good one. Needs no device.
KILN_API KernelSpec spec_of(const Key& key);

/// Steps of more tokens have portable clusters: at most 8 blocks.
inline constexpr std::uint64_t kMostSmallTokens = 7;

/// Blocks that share a token: one for 64, for 80 or for 128 of its slots, the fewest slots with
/// which all tokens' clusters are resident at once, as far as that goes. Results depend on it in
/// their last bits.
KILN_API u32 blocks_for(const Key& key, std::uint64_t tokens) noexcept;

/// The launch of `tokens` tokens, on any device: what a prepared launch needs anew for a call.
/// Requires a good key, at most kMostTokens, and small_tiles(), medium_tiles() or large_tiles()
/// `blocks`.
KILN_API Plan plan_of(const Key& key, std::uint64_t tokens, u32 blocks) noexcept;

/// Plans one call, of blocks_for() blocks.
///
/// Shapes  a block for a tile of a token's slots, a token a cluster
/// Units   grid in blocks, block in threads, shared memory in bytes
/// Errors  invalid_argument as check_key(), or for too many tokens; unsupported for an architecture
///         without clusters (before sm_90) and one whose blocks have too little shared memory
/// Source  vLLM's swap-AB decode for DeepSeek-V4.1; see NOTES.md
KILN_API Result<Plan> plan(const Key& key, std::uint64_t tokens, const DeviceInfo& device);

}  // namespace swapab

namespace mega {

/// What the padded-head program needs: check(key), nothing more.
/// Errors  invalid_argument naming the field, its value and what is allowed.
KILN_API Status check_key(const Key& key);

/// What registers the program of `key`, which must be a good one. Needs no device.
KILN_API KernelSpec spec_of(const Key& key);

/// Blocks that share a token, 2 to 8: fewer for more tokens, so that a wave holds them all. Results
/// depend on it in their last bits.
KILN_API u32 blocks_for(const Key& key, std::uint64_t tokens) noexcept;

/// The launch of `tokens` tokens. Requires a good key, at most kMostTokens, and 2 to 8 `blocks` a
/// token.
KILN_API Plan plan_of(const Key& key, std::uint64_t tokens, u32 blocks) noexcept;

/// Plans one call, of blocks_for() blocks.
///
/// Shapes  a token a cluster, whose blocks take turns at tiles of 64 slots
/// Units, errors  as swapab::plan()
/// Source  the mapping of FlashMLA's sparse decode on Hopper; see NOTES.md
KILN_API Result<Plan> plan(const Key& key, std::uint64_t tokens, const DeviceInfo& device);

}  // namespace mega

}  // namespace kiln::kernels::dsv41_decode
