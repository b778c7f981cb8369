#include "kernel_src/dsv41_decode/plan.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace kiln::kernels::dsv41_decode {
namespace {

constexpr std::string_view kSwapab = "dsv41_swapab_decode";
constexpr std::string_view kMega = "dsv41_mega_decode";

Error wrong(std::string_view kernel, std::string_view name, std::uint64_t value,
            std::string_view allowed) {
  return {ErrorCode::invalid_argument, std::string(kernel) + ": " + std::string(name) + " is " +
                                           std::to_string(value) + "; it must be " +
                                           std::string(allowed)};
}

Error unsupported(std::string_view kernel, const std::string& architecture,
                  const std::string& why) {
  return {ErrorCode::unsupported,
          std::string(kernel) + ": no kernel for \"" + architecture + "\"; " + why};
}

/// The number in "sm_90a"; 0 for anything else.
unsigned architecture_number(std::string_view name) {
  unsigned number = 0;
  if (name.starts_with("sm_")) std::from_chars(name.data() + 3, name.data() + name.size(), number);
  return number;
}

/// The most shared memory that a block can have: CUDA's table of compute capabilities. A DeviceInfo
/// made by hand may know less than that, never more.
unsigned shared_bytes_of(const DeviceInfo& device) {
  const unsigned number = architecture_number(device.architecture);
  const unsigned most = number >= 120 && number < 130 ? 99 * 1024 : 227 * 1024;
  return std::min(most, device.shared_bytes_per_block);
}

Status check_tokens(std::string_view kernel, std::uint64_t tokens) {
  if (tokens > kMostTokens)
    return wrong(kernel, "tokens", tokens,
                 "at most " + std::to_string(kMostTokens) + ", which the grid can hold");
  return {};
}

/// The plan, where the device can run it.
Result<Plan> on_device(std::string_view kernel, const Plan& made, const DeviceInfo& device) {
  if (architecture_number(device.architecture) < 90)
    return unsupported(kernel, device.architecture, "it needs sm_90 or later (clusters)");
  if (const unsigned most = shared_bytes_of(device); made.shape.shared_bytes > most)
    return unsupported(kernel, device.architecture,
                       "a block needs " + std::to_string(made.shape.shared_bytes) +
                           " bytes of shared memory and can have " + std::to_string(most));
  return made;
}

}  // namespace

namespace swapab {

Status check_key(const Key& key) {
  KILN_TRY(dsv41_decode::check(key));
  if (key.heads != 16 && key.heads != 32) return wrong(kSwapab, "heads", key.heads, "16 or 32");
  if (key.compressed_slots == 0)
    return wrong(kSwapab, "compressed_slots", 0,
                 "at least 1: layers without a compressed cache have too "
                 "few slots for this kernel");
  if (const u32 count = large_tiles(key.swa_slots, key.compressed_slots); count > kMostTiles)
    return wrong(kSwapab, "swa_slots / 128 + compressed_slots / 128, each rounded up,", count,
                 "at most 8, the blocks of a cluster");
  return {};
}

KernelSpec spec_of(const Key& key) {
  return {.name = std::string(kSwapab),
          .source = "kernel_src/dsv41_decode/swapab.cu",
          .variants = {{"sm_90a", "kernel_src/dsv41_decode/swapab_sm90a.cu"}},
          .key = key_values(key),
          .builtins = Builtins::minimal,
          .oldest_sm = 90};
}

u32 blocks_for(const Key& key, std::uint64_t count) noexcept {
  // An H200 holds 7 clusters of more than 8 blocks at once, each of which takes most of a group of
  // SMs, and 15 of 8.
  constexpr std::uint64_t most_medium = 15;
  return count <= kMostSmallTokens ? small_tiles(key.swa_slots, key.compressed_slots)
         : count <= most_medium    ? medium_tiles(key.swa_slots, key.compressed_slots)
                                   : large_tiles(key.swa_slots, key.compressed_slots);
}

Plan plan_of(const Key& key, std::uint64_t count, u32 blocks) noexcept {
  Plan made{.key = key};
  made.shape.grid_blocks = {blocks, static_cast<u32>(count), 1};
  made.shape.cluster_blocks = {blocks, 1, 1};
  made.shape.block_threads.x = kBlockThreads;
  made.shape.shared_bytes = swapab::shared_bytes(key.heads, key.swa_slots, key.compressed_slots);
  return made;
}

Result<Plan> plan(const Key& key, std::uint64_t count, const DeviceInfo& device) {
  KILN_TRY(check_key(key));
  KILN_TRY(check_tokens(kSwapab, count));
  return on_device(kSwapab, plan_of(key, count, blocks_for(key, count)), device);
}

}  // namespace swapab

namespace mega {
namespace {

/// Of `all` tiles, dealt out to so many blocks or in so many rounds.
constexpr u32 tiles_of_each(u32 all, u32 shares) {
  return (all + shares - 1) / shares;
}

}  // namespace

Status check_key(const Key& key) {
  return dsv41_decode::check(key);
}

KernelSpec spec_of(const Key& key) {
  return {.name = std::string(kMega),
          .source = "kernel_src/dsv41_decode/mega.cu",
          .variants = {{"sm_90a", "kernel_src/dsv41_decode/mega_sm90a.cu"}},
          .key = key_values(key),
          .builtins = Builtins::minimal,
          .oldest_sm = 90};
}

u32 blocks_for(const Key& key, std::uint64_t count) noexcept {
  // How many clusters of so many blocks an H200 (132 SMs) holds at once, as measured, rounded down.
  const u32 most = count <= 15 ? 8 : count <= 22 ? 5 : count <= 30 ? 4 : count <= 40 ? 3 : 2;
  const u32 all = tiles(key.swa_slots) + tiles(key.compressed_slots);
  const u32 rounds = tiles_of_each(all, most);
  return std::clamp(tiles_of_each(all, rounds), kLeastBlocks, kMostBlocks);
}

Plan plan_of(const Key& key, std::uint64_t count, u32 blocks) noexcept {
  Plan made{.key = key};
  made.shape.grid_blocks = {blocks, static_cast<u32>(count), 1};
  made.shape.cluster_blocks = {blocks, 1, 1};
  made.shape.block_threads.x = kBlockThreads;
  made.shape.shared_bytes = Layout::bytes;
  return made;
}

Result<Plan> plan(const Key& key, std::uint64_t count, const DeviceInfo& device) {
  KILN_TRY(check_key(key));
  KILN_TRY(check_tokens(kMega, count));
  return on_device(kMega, plan_of(key, count, blocks_for(key, count)), device);
}

}  // namespace mega

}  // namespace kiln::kernels::dsv41_decode
