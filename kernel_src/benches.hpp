// What kernels are benchmarked with: for each a few problems that stand for its use, with their
// data on the device and with what the output must be. benches.cpp has one line a kernel, and its
// bench.cpp the rest; the harness gives the device's memory.
//
// Threads: as bench::Device says.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/bench.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels {

/// One problem with its data on the device.
struct BenchCase {
  /// Of the kernel that solves it.
  KernelSpec spec{};
  /// An arm that launches the kernel as `runtime`, which knows the sources of kernels.hpp, compiles
  /// or finds it. Arms of one case share inputs and outputs, which live as long as any of them.
  std::function<Result<bench::DeviceArm>(Runtime& runtime, std::string name)> arm{};
};

struct KernelBench {
  std::string_view name{};  ///< the kernel's
  /// Such as "fp8, 16 heads".
  std::span<const std::string_view> problems{};
  /// Requires a problem of the list and at most kMostBenchTokens.
  Result<BenchCase> (*make)(const bench::Device& device, std::size_t problem,
                            std::uint64_t tokens) = nullptr;
};

/// More take gigabytes and minutes for the check on the host.
inline constexpr std::uint64_t kMostBenchTokens = 8192;

/// In order of name.
std::span<const KernelBench> kernel_benches() noexcept;

}  // namespace kiln::kernels
