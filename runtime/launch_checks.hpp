// What can be wrong with a launch, found with the numbers before the driver is asked to launch.
//
// Threads: pure but for the driver's occupancy queries, which need the device's current context.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>

#include "kiln/launch.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln {

/// "4 x 1 x 1".
std::string text_of(const Extent& extent);
/// Saturates instead of wrapping, so that no absurd extent passes for a small one.
std::uint64_t volume_of(const Extent& extent) noexcept;

/// "launch of kernel <name>: <what>".
Error launch_error(const LoadedKernel& kernel, ErrorCode code, const std::string& what);

/// The driver answers and loads for the current context.
/// Errors  no_device when that is one of another device, or none is current; driver_failed
Status check_current_device(const LoadedKernel& kernel);
/// Everything about a shape but its grid, as far as numbers tell.
Status check_shape(const LoadedKernel& kernel, const LaunchShape& shape);
/// A grid without a 0 in it. `cluster` divides it, and `most_resident_blocks` holds it.
Status check_grid(const LoadedKernel& kernel, const Extent& grid, const Extent& cluster,
                  std::uint64_t most_resident_blocks);
Status check_arguments(const LoadedKernel& kernel, std::span<const Argument> arguments);

/// The cluster that a launch of `shape` has.
/// Errors  invalid_argument when the kernel was compiled for another one.
Result<Extent> cluster_of(const LoadedKernel& kernel, const Extent& asked);
/// Whether the device has room for one cluster of `config`.
/// Errors  unsupported, with the largest size that there is room for; driver_failed.
Status check_cluster_fits(const LoadedKernel& kernel, const Extent& cluster,
                          const CUlaunchConfig& config);
/// How many blocks of `config` can be resident at once.
Result<std::uint64_t> most_resident_blocks(const LoadedKernel& kernel, const Extent& cluster,
                                           const CUlaunchConfig& config);

}  // namespace kiln
