#include "runtime/launch_checks.hpp"

#include "runtime/architecture.hpp"
#include "runtime/message_text.hpp"

namespace kiln {
namespace {

// Of a tensor map's address, wherever it lies.
constexpr unsigned kTensorMapAlignment = 64;

constexpr int kFirstWithOverlap = 90;

// 90 for code of compute capability 9.0.
Result<int> sm_of(const LoadedKernel& kernel) {
  KILN_TRY(const auto parsed, parse_architecture(kernel.library().artifact().facts.architecture));
  return parsed.sm;
}

// Where parameters begin in the constant bank: see KernelParameter.
constexpr unsigned first_parameter(int sm) {
  return sm < 90 ? 0x160 : sm < 100 ? 0x210 : 0x380;
}

bool divides(const Extent& cluster, const Extent& grid) {
  return grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0;
}

bool within(const Extent& extent, const Extent& limit) {
  return extent.x <= limit.x && extent.y <= limit.y && extent.z <= limit.z;
}

Error bad(const LoadedKernel& kernel, const std::string& what) {
  return launch_error(kernel, ErrorCode::invalid_argument, what);
}

CUfunction function_of(const LoadedKernel& kernel) {
  return reinterpret_cast<CUfunction>(kernel.library().kernel());
}

Status check_block(const LoadedKernel& kernel, const LaunchShape& shape) {
  const auto& limits = kernel.limits();
  const auto threads = volume_of(shape.block_threads);
  if (threads == 0 || threads > limits.threads_per_block)
    return bad(kernel, "the block is " + text_of(shape.block_threads) + " = " +
                           std::to_string(threads) + " threads; this kernel allows 1 to " +
                           std::to_string(limits.threads_per_block));
  if (!within(shape.block_threads, limits.block_threads))
    return bad(kernel, "the block is " + text_of(shape.block_threads) +
                           " threads; the device allows at most " + text_of(limits.block_threads));
  if (const auto& only = kernel.library().artifact().facts.bounds.block_threads;
      only[0] != 0 && shape.block_threads != Extent{only[0], only[1], only[2]})
    return bad(kernel, "the block is " + text_of(shape.block_threads) +
                           " threads; the kernel was compiled for " +
                           text_of({only[0], only[1], only[2]}) + " and no other");
  if (shape.shared_bytes > limits.dynamic_shared_bytes)
    return bad(kernel, "dynamic shared memory of " + std::to_string(shape.shared_bytes) +
                           " bytes on top of " + std::to_string(limits.static_shared_bytes) +
                           " static; at most " + std::to_string(limits.dynamic_shared_bytes) +
                           " fit on device " + std::to_string(kernel.ordinal()));
  return {};
}

Status check_attributes(const LoadedKernel& kernel, const LaunchShape& shape) {
  if (shape.overlap_previous != Overlap::no) {
    KILN_TRY(const int sm, sm_of(kernel));
    if (sm < kFirstWithOverlap)
      return launch_error(kernel, ErrorCode::unsupported,
                          "device " + std::to_string(kernel.ordinal()) +
                              " cannot overlap kernels (that came with compute capability 9.0); "
                              "use Overlap::no");
  }
  if (shape.overlap_previous == Overlap::yes && !kernel.library().artifact().facts.waits_on_grid)
    return launch_error(
        kernel, ErrorCode::unsupported,
        "it may not overlap the kernel before it, since its code holds no "
        "griddepcontrol.wait. Add the wait before its first read, use Overlap::no, "
        "or Overlap::yes_without_wait if it touches nothing that the kernels before "
        "it write");
  if (shape.cooperative && !kernel.limits().cooperative)
    return launch_error(
        kernel, ErrorCode::unsupported,
        "device " + std::to_string(kernel.ordinal()) + " cannot launch cooperatively");
  const auto& window = shape.access_window;
  if (window.bytes > 0 && !(window.hit_ratio >= 0 && window.hit_ratio <= 1))
    return bad(kernel, "the access window's hit ratio is " + std::to_string(window.hit_ratio) +
                           "; it must be from 0 to 1");
  if (window.bytes > 0 &&
      (window.base == nullptr || window.bytes > kernel.limits().access_window_bytes))
    return bad(kernel, "the access window is of " + counted(window.bytes, "byte") +
                           (window.base == nullptr ? " at no address" : "") +
                           "; the device allows at most " +
                           std::to_string(kernel.limits().access_window_bytes));
  if (window.bytes > 0 && window.misses == CachePolicy::persisting)
    return bad(kernel,
               "the access window's misses are persisting; they can be normal or streaming");
  if (shape.shared_carveout_percent && *shape.shared_carveout_percent > 100)
    return bad(kernel, "the shared memory carveout is " +
                           std::to_string(*shape.shared_carveout_percent) +
                           " percent; it must be from 0 to 100");
  return {};
}

Status check_clusters(const LoadedKernel& kernel, const LaunchShape& shape) {
  KILN_TRY(const auto cluster, cluster_of(kernel, shape.cluster_blocks));
  const auto& preferred = shape.preferred_cluster_blocks;
  if (volume_of(preferred) == 1) return {};
  if (volume_of(cluster) == 1)
    return bad(kernel, "a preferred cluster of " + text_of(preferred) +
                           " blocks needs a cluster beside it; set cluster_blocks");
  if (volume_of(preferred) == 0 || !divides(cluster, preferred))
    return bad(kernel, "the preferred cluster of " + text_of(preferred) +
                           " blocks is not a multiple of the cluster of " + text_of(cluster) +
                           " blocks in each dimension");
  if (const auto most = kernel.library().artifact().facts.bounds.max_cluster_blocks;
      most != 0 && volume_of(preferred) > most)
    return bad(kernel, "the preferred cluster of " + text_of(preferred) + " = " +
                           std::to_string(volume_of(preferred)) +
                           " blocks; the kernel was compiled for at most " + std::to_string(most));
  if (preferred.z != cluster.z)
    return bad(kernel, "the preferred cluster of " + text_of(preferred) +
                           " blocks differs from the cluster of " + text_of(cluster) +
                           " blocks in z, where they must be equal");
  if (volume_of(shape.grid_blocks) != 0 && !divides(preferred, shape.grid_blocks))
    return bad(kernel, "the grid of " + text_of(shape.grid_blocks) +
                           " blocks is not a multiple of the preferred cluster of " +
                           text_of(preferred) + " blocks in each dimension");
  return {};
}

}  // namespace

std::string text_of(const Extent& extent) {
  return std::to_string(extent.x) + " x " + std::to_string(extent.y) + " x " +
         std::to_string(extent.z);
}

std::uint64_t volume_of(const Extent& extent) noexcept {
  const auto area = std::uint64_t{extent.x} * extent.y;
  if (extent.z != 0 && area > UINT64_MAX / extent.z) return UINT64_MAX;
  return area * extent.z;
}

Error launch_error(const LoadedKernel& kernel, ErrorCode code, const std::string& what) {
  return Error(code, "launch of kernel " + kernel.library().artifact().facts.kernel + ": " + what);
}

Status check_current_device(const LoadedKernel& kernel) {
  KILN_TRY(const auto current, kernel.library().driver().current_device());
  if (current == kernel.ordinal()) return {};
  return launch_error(
      kernel, ErrorCode::no_device,
      "it is of device " + std::to_string(kernel.ordinal()) + ", and " +
          (current < 0 ? "no context is current"
                       : "the current context is of device " + std::to_string(current)) +
          " on this thread; make one of its device current to prepare it or to change its cluster");
}

Status check_shape(const LoadedKernel& kernel, const LaunchShape& shape) {
  if (auto status = check_block(kernel, shape); !status) return status;
  if (auto status = check_attributes(kernel, shape); !status) return status;
  return check_clusters(kernel, shape);
}

Status check_grid(const LoadedKernel& kernel, const Extent& grid, const Extent& cluster,
                  std::uint64_t most_resident_blocks) {
  if (!within(grid, kernel.limits().grid_blocks))
    return bad(kernel, "the grid is " + text_of(grid) + " blocks; the device allows at most " +
                           text_of(kernel.limits().grid_blocks));
  if (!divides(cluster, grid))
    return bad(kernel, "the grid of " + text_of(grid) +
                           " blocks is not a multiple of the cluster of " + text_of(cluster) +
                           " blocks in each dimension");
  if (volume_of(grid) > most_resident_blocks)
    return bad(kernel, "the cooperative grid is " + text_of(grid) + " = " +
                           std::to_string(volume_of(grid)) + " blocks; at most " +
                           std::to_string(most_resident_blocks) +
                           " of this shape are resident at once on device " +
                           std::to_string(kernel.ordinal()));
  return {};
}

Status check_arguments(const LoadedKernel& kernel, std::span<const Argument> arguments) {
  const auto& parameters = kernel.library().parameters();
  if (arguments.size() != parameters.size())
    return bad(kernel, counted(arguments.size(), "argument") + " given, the kernel has " +
                           counted(parameters.size(), "parameter"));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].bytes != parameters[i].bytes)
      return bad(kernel, "argument " + std::to_string(i) + " has " +
                             counted(arguments[i].bytes, "byte") + ", the parameter has " +
                             std::to_string(parameters[i].bytes) +
                             ": pass a value of exactly the parameter's type");
    if (arguments[i].data == nullptr)
      return bad(kernel, "argument " + std::to_string(i) + " is at a null pointer");
    if (!arguments[i].is_tensor_map) continue;
    KILN_TRY(const int sm, sm_of(kernel));
    if (const auto place = first_parameter(sm) + parameters[i].offset;
        place % kTensorMapAlignment != 0)
      return bad(kernel, "argument " + std::to_string(i) +
                             " is a tensor map, but its parameter lies at address " +
                             std::to_string(place) + ", no multiple of " +
                             std::to_string(kTensorMapAlignment) +
                             ": declare it const __grid_constant__ kiln::TensorMap");
  }
  return {};
}

Result<Extent> cluster_of(const LoadedKernel& kernel, const Extent& asked) {
  const auto& compiled = kernel.limits().compiled_cluster;
  const auto& bounds = kernel.library().artifact().facts.bounds;
  if (volume_of(asked) == 0)
    return bad(kernel, "the cluster is " + text_of(asked) + " blocks; no dimension may be 0");
  if (bounds.grid_counts_clusters && compiled && volume_of(*compiled) > 1)
    return launch_error(kernel, ErrorCode::unsupported,
                        "its grid would count clusters instead of blocks, since __block_size__ "
                        "gives a cluster in its source; give it by __cluster_dims__ there");
  if (asked == Extent{}) return compiled.value_or(Extent{});
  if (compiled && asked != *compiled)
    return bad(kernel, "the cluster of " + text_of(asked) +
                           " blocks differs from the one that the kernel was compiled with, " +
                           text_of(*compiled) + " blocks");
  if (const auto most = bounds.max_cluster_blocks; most != 0 && volume_of(asked) > most)
    return bad(kernel, "the cluster of " + text_of(asked) + " = " +
                           std::to_string(volume_of(asked)) +
                           " blocks; the kernel was compiled for at most " + std::to_string(most));
  if (!kernel.limits().clusters)
    return launch_error(kernel, ErrorCode::unsupported,
                        "a cluster of " + text_of(asked) + " blocks; device " +
                            std::to_string(kernel.ordinal()) +
                            " has no clusters (they came with compute capability 9.0)");
  if (!within(asked, kernel.limits().grid_blocks))
    return bad(kernel, "the cluster is " + text_of(asked) +
                           " blocks; a grid of the device has at most " +
                           text_of(kernel.limits().grid_blocks));
  return asked;
}

Status check_cluster_fits(const LoadedKernel& kernel, const Extent& cluster,
                          const CUlaunchConfig& config) {
  const auto& api = kernel.library().driver();
  const auto blocks = volume_of(cluster);
  int active = 0;
  const auto result = api.cuOccupancyMaxActiveClusters(&active, function_of(kernel), &config);
  if (result == CUDA_SUCCESS && active > 0) return {};
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_CLUSTER_SIZE)
    return kernel.library().failed("cuOccupancyMaxActiveClusters", result);
  // The largest size there is, of any shape: asked without the attribute that does not fit.
  auto plain = config;
  plain.numAttrs = 0;
  int largest = 0;
  if (api.cuOccupancyMaxPotentialClusterSize(&largest, function_of(kernel), &plain) != CUDA_SUCCESS)
    largest = 0;
  return launch_error(
      kernel, ErrorCode::unsupported,
      "device " + std::to_string(kernel.ordinal()) + " has no room for a cluster of " +
          text_of(cluster) + " = " + std::to_string(blocks) + " blocks with " +
          std::to_string(config.sharedMemBytes) + " bytes of dynamic shared memory each" +
          (largest > 0 ? "; at most " + std::to_string(largest) + " blocks make a cluster" : ""));
}

Result<std::uint64_t> most_resident_blocks(const LoadedKernel& kernel, const Extent& cluster,
                                           const CUlaunchConfig& config) {
  const auto& api = kernel.library().driver();
  int count = 0;
  if (volume_of(cluster) > 1) {
    const auto result = api.cuOccupancyMaxActiveClusters(&count, function_of(kernel), &config);
    if (result != CUDA_SUCCESS)
      return kernel.library().failed("cuOccupancyMaxActiveClusters", result);
    return static_cast<std::uint64_t>(count) * volume_of(cluster);
  }
  const auto threads = static_cast<int>(config.blockDimX * config.blockDimY * config.blockDimZ);
  const auto result = api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &count, function_of(kernel), threads, config.sharedMemBytes);
  if (result != CUDA_SUCCESS)
    return kernel.library().failed("cuOccupancyMaxActiveBlocksPerMultiprocessor", result);
  return static_cast<std::uint64_t>(count) * kernel.limits().sm_count;
}

}  // namespace kiln
