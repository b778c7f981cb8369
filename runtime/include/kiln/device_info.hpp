// All that a planner may depend on. Made by hand in tests and for machines without a GPU.
//
// Threads: a value; functions from any thread.
#pragma once

#include <string>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"

namespace kiln {

struct DeviceInfo {
  /// With suffix, such as "sm_90a".
  std::string architecture{};
  unsigned sm_count = 0;
  /// Largest dynamic shared memory of a block after opting in, in bytes.
  unsigned shared_bytes_per_block = 0;
  /// Driver ordinal within this process; -1 when there is no such device here.
  int ordinal = -1;
};

/// What Kiln compiles for on a device of this compute capability: architecture-specific ("sm_90a")
/// from 9.0 on, plain ("sm_86") before.
KILN_API std::string architecture_of(int compute_major, int compute_minor);

/// The architectures of the GPUs in this machine, each once, for a compile-only warmup in a process
/// that forks later: NVML is asked, so CUDA is not initialised, and children can still use it. GPUs
/// that CUDA_VISIBLE_DEVICES hides are among them.
/// Errors  no_device when NVML is missing, fails, or sees no GPU.
KILN_API Result<std::vector<std::string>> installed_architectures();

}  // namespace kiln
