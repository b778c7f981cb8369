#include "kiln/launch.hpp"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver_api.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln {
namespace {

constexpr std::size_t kSlotsPerSlab = 64;
constexpr std::size_t kInlineArgumentBytes = 512;
constexpr std::size_t kInlineArguments = 32;
constexpr std::size_t kArgumentAlignment = 16;
// Clusters beyond this size need an opt-in on the function and are not portable.
constexpr unsigned kPortableClusterBlocks = 8;

std::string text(const Extent& extent) {
  return std::to_string(extent.x) + " x " + std::to_string(extent.y) + " x " +
         std::to_string(extent.z);
}

// Saturates instead of wrapping, so that no absurd extent passes for a small one.
unsigned long long volume(const Extent& extent) {
  const auto area = 1ULL * extent.x * extent.y;
  if (area > UINT32_MAX && extent.z != 0) return UINT64_MAX;
  return area * extent.z;
}

bool divides(const Extent& cluster, const Extent& grid) {
  return grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kArgumentAlignment - 1) / kArgumentAlignment * kArgumentAlignment;
}

Error bad(const LoadedKernel& kernel, const std::string& what) {
  return Error(ErrorCode::invalid_argument,
               "launch of kernel " + kernel.library().artifact().facts.kernel + ": " + what);
}

Status check_shape(const LoadedKernel& kernel, const LaunchShape& shape) {
  const auto& limits = kernel.limits();
  const auto& facts = kernel.library().artifact().facts;
  if (volume(shape.grid_blocks) == 0)
    return bad(kernel, "the grid is " + text(shape.grid_blocks) +
                           " blocks; no dimension may be 0 (skip the launch for an empty batch)");
  if (volume(shape.block_threads) == 0 || volume(shape.block_threads) > limits.threads_per_block)
    return bad(kernel, "the block is " + text(shape.block_threads) + " = " +
                           std::to_string(volume(shape.block_threads)) +
                           " threads; this kernel allows 1 to " +
                           std::to_string(limits.threads_per_block));
  if (volume(shape.cluster_blocks) == 0 || !divides(shape.cluster_blocks, shape.grid_blocks))
    return bad(kernel, "the grid of " + text(shape.grid_blocks) +
                           " blocks is not a multiple of the cluster of " +
                           text(shape.cluster_blocks) + " blocks in each dimension");
  if (volume(shape.cluster_blocks) > kPortableClusterBlocks)
    return Error(ErrorCode::unsupported,
                 "launch of kernel " + facts.kernel + ": a cluster of " +
                     std::to_string(volume(shape.cluster_blocks)) + " blocks; at most " +
                     std::to_string(kPortableClusterBlocks) + " are portable");
  if (shape.shared_bytes > limits.dynamic_shared_bytes)
    return bad(kernel, "dynamic shared memory of " + std::to_string(shape.shared_bytes) +
                           " bytes on top of " + std::to_string(limits.static_shared_bytes) +
                           " static; at most " + std::to_string(limits.dynamic_shared_bytes) +
                           " fit on device " + std::to_string(kernel.ordinal()));
  if (shape.overlap_previous == Overlap::yes && !facts.waits_on_grid)
    return Error(ErrorCode::unsupported,
                 "launch of kernel " + facts.kernel +
                     ": it may not overlap the kernel before it, since its code holds no "
                     "griddepcontrol.wait. Add the wait before its first read, or use Overlap::no");
  return {};
}

Status check_arguments(const LoadedKernel& kernel, std::span<const Argument> arguments) {
  const auto& parameters = kernel.library().artifact().facts.parameters;
  if (arguments.size() != parameters.size())
    return bad(kernel, std::to_string(arguments.size()) + " arguments given, the kernel has " +
                           std::to_string(parameters.size()) + " parameters");
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].bytes != parameters[i].bytes)
      return bad(kernel, "argument " + std::to_string(i) + " has " +
                             std::to_string(arguments[i].bytes) + " bytes, the parameter has " +
                             std::to_string(parameters[i].bytes));
  return {};
}

}  // namespace

// Everything the driver reads at a launch, at one address. The first cache lines are the launch
// structure and what goes with it; inline storage covers every kernel with few arguments.
struct alignas(128) LaunchDescriptor::Slot {
  CUlaunchConfig config{};
  std::array<CUlaunchAttribute, 2> attributes{};
  decltype(&::cuLaunchKernelEx) launch = nullptr;
  CUfunction function = nullptr;
  void** argument_table = nullptr;
  unsigned generation = 0;
  unsigned argument_count = 0;
  Extent cluster_blocks{};
  alignas(kArgumentAlignment) std::array<std::byte, kInlineArgumentBytes> inline_bytes{};
  std::array<void*, kInlineArguments> inline_table{};
  std::vector<std::size_t> argument_bytes;
  std::unique_ptr<std::byte[]> large_bytes;
  std::unique_ptr<void*[]> large_table;
  std::shared_ptr<const LoadedKernel> kernel;
  Slot* next_free = nullptr;

  void store_arguments(std::span<const Argument> arguments);
};

void LaunchDescriptor::Slot::store_arguments(std::span<const Argument> arguments) {
  std::size_t total = 0;
  for (const auto& argument : arguments) total += aligned(argument.bytes);
  // operator new[] aligns to at least kArgumentAlignment on the platforms that CUDA runs on.
  static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= kArgumentAlignment);
  if (total > kInlineArgumentBytes) large_bytes = std::make_unique<std::byte[]>(total);
  if (arguments.size() > kInlineArguments)
    large_table = std::make_unique<void*[]>(arguments.size());
  auto* bytes = large_bytes ? large_bytes.get() : inline_bytes.data();
  argument_table = large_table ? large_table.get() : inline_table.data();
  argument_count = static_cast<unsigned>(arguments.size());
  argument_bytes.clear();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    argument_table[i] = bytes;
    std::memcpy(bytes, arguments[i].data, arguments[i].bytes);
    argument_bytes.push_back(arguments[i].bytes);
    bytes += aligned(arguments[i].bytes);
  }
}

// Slots in slabs that never move; a lease keeps this alive, so a pool may go before its leases.
struct LaunchPool::State {
  using Slot = LaunchDescriptor::Slot;

  Slot* acquire() {
    const std::lock_guard lock(mutex);
    if (free == nullptr) {
      slabs.push_back(std::make_unique<std::array<Slot, kSlotsPerSlab>>());
      for (auto& slot : *slabs.back()) {
        slot.next_free = free;
        free = &slot;
      }
    }
    return std::exchange(free, free->next_free);
  }

  void release(Slot* slot) noexcept {
    // The kernel may be the last owner of its library: unload outside the lock.
    const auto kernel = std::move(slot->kernel);
    slot->large_bytes.reset();
    slot->large_table.reset();
    const std::lock_guard lock(mutex);
    slot->next_free = free;
    free = slot;
  }

  std::mutex mutex;
  Slot* free = nullptr;
  std::vector<std::unique_ptr<std::array<Slot, kSlotsPerSlab>>> slabs;
};

LaunchPool::LaunchPool() : state_(std::make_shared<State>()) {}

Result<LaunchDescriptor> LaunchPool::prepare(const Kernel& kernel, const LaunchShape& shape,
                                             std::span<const Argument> arguments) {
  if (!kernel)
    return Error(ErrorCode::invalid_argument,
                 "launch of an empty Kernel: get one from Runtime::get first");
  const auto& loaded = *kernel.loaded_;
  if (auto status = check_shape(loaded, shape); !status) return status.error();
  if (auto status = check_arguments(loaded, arguments); !status) return status.error();

  auto* slot = state_->acquire();
  LaunchDescriptor descriptor(slot, state_);
  slot->kernel = kernel.loaded_;
  slot->launch = loaded.library().driver().cuLaunchKernelEx;
  slot->function = reinterpret_cast<CUfunction>(loaded.library().kernel());
  slot->generation = loaded.library().generation();
  slot->store_arguments(arguments);

  auto& config = slot->config;
  config = {};
  config.gridDimX = shape.grid_blocks.x;
  config.gridDimY = shape.grid_blocks.y;
  config.gridDimZ = shape.grid_blocks.z;
  config.blockDimX = shape.block_threads.x;
  config.blockDimY = shape.block_threads.y;
  config.blockDimZ = shape.block_threads.z;
  config.sharedMemBytes = shape.shared_bytes;
  config.attrs = slot->attributes.data();
  slot->cluster_blocks = shape.cluster_blocks;
  if (volume(shape.cluster_blocks) > 1) {
    auto& attribute = slot->attributes[config.numAttrs++];
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {shape.cluster_blocks.x, shape.cluster_blocks.y,
                                  shape.cluster_blocks.z};
  }
  if (shape.overlap_previous == Overlap::yes) {
    auto& attribute = slot->attributes[config.numAttrs++];
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  return descriptor;
}

LaunchDescriptor::LaunchDescriptor(LaunchDescriptor&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)), pool_(std::move(other.pool_)) {}

LaunchDescriptor& LaunchDescriptor::operator=(LaunchDescriptor&& other) noexcept {
  std::swap(slot_, other.slot_);
  std::swap(pool_, other.pool_);
  return *this;
}

LaunchDescriptor::~LaunchDescriptor() {
  if (slot_ != nullptr) static_cast<LaunchPool::State*>(pool_.get())->release(slot_);
}

Status LaunchDescriptor::launch(CUstream stream) noexcept {
  auto& slot = *slot_;
  if (slot.generation != fork_generation()) [[unlikely]]
    return Error(ErrorCode::no_device,
                 "launch in a process forked after CUDA was initialised: fork before the first use "
                 "of CUDA, or start a new process");
  slot.config.hStream = stream;
  const auto result = slot.launch(&slot.config, slot.function, slot.argument_table, nullptr);
  if (result == CUDA_SUCCESS) [[likely]]
    return {};
  return slot.kernel->library().driver().failed("cuLaunchKernelEx", result);
}

Status LaunchDescriptor::set_argument_bytes(std::size_t index, const void* data,
                                            std::size_t bytes) noexcept {
  auto& slot = *slot_;
  if (index >= slot.argument_count)
    return bad(*slot.kernel, "there is no argument " + std::to_string(index) + "; the kernel has " +
                                 std::to_string(slot.argument_count));
  if (bytes != slot.argument_bytes[index])
    return bad(*slot.kernel, "argument " + std::to_string(index) + " has " +
                                 std::to_string(slot.argument_bytes[index]) + " bytes, not " +
                                 std::to_string(bytes));
  std::memcpy(slot.argument_table[index], data, bytes);
  return {};
}

Status LaunchDescriptor::set_grid(Extent grid_blocks) noexcept {
  auto& slot = *slot_;
  if (volume(grid_blocks) == 0 || !divides(slot.cluster_blocks, grid_blocks))
    return bad(*slot.kernel, "the grid of " + text(grid_blocks) +
                                 " blocks is zero or not a multiple of the cluster of " +
                                 text(slot.cluster_blocks) + " blocks");
  slot.config.gridDimX = grid_blocks.x;
  slot.config.gridDimY = grid_blocks.y;
  slot.config.gridDimZ = grid_blocks.z;
  return {};
}

}  // namespace kiln
