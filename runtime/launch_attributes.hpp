// A LaunchShape in the driver's terms: its launch attributes.
//
// Threads: pure functions.
#pragma once

#include <cuda.h>

#include <span>

#include "kiln/error.hpp"
#include "kiln/launch_shape.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln {

/// Writes what `shape` asks for, and nothing where it asks for the driver's default, in a fixed
/// order; a cluster comes first. Returns how many. `attributes` holds kMostLaunchAttributes.
/// Errors  unsupported for an attribute that the driver is too old for, naming both versions.
Result<unsigned> write_attributes(const LoadedKernel& kernel, const LaunchShape& shape,
                                  std::span<CUlaunchAttribute> attributes);

}  // namespace kiln
