// How many compiles may run at once: what the machine gives this process of processors and memory,
// and why.
//
// Threads: pure functions and values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kiln {

/// What bounds the compiles of this process.
struct MachineLimits {
  double processors = 1;        ///< a quota may be a fraction
  std::string processors_by{};  ///< where that comes from: "2 processors", "a cgroup's CPU quota"
  /// What is left for compiles; empty: nothing says.
  std::optional<std::uint64_t> memory_bytes{};
  std::string memory_by{};
};

/// Reads affinity, cgroups (both versions), the memory that is free, and ulimit. `root` stands
/// before /proc and /sys in tests. A limit on address space counts only where all compiles share
/// one process (`in_process`).
MachineLimits machine_limits(bool in_process, const std::filesystem::path& root = "/");

/// Of this process, now; 0 when it cannot be told.
std::uint64_t resident_bytes();

struct JobCount {
  unsigned jobs = 1;
  /// "2 jobs: 2 processors (affinity); memory would take 40 of 512 MiB each".
  std::string reason{};
};

/// `asked`: the number that an option gives, 0 for none; memory bounds it all the same.
/// `compile_bytes`: the expected peak of one compile.
JobCount choose_jobs(unsigned asked, const MachineLimits& limits, std::uint64_t compile_bytes);

/// More than this are asked for by mistake.
inline constexpr unsigned kMostJobs = 1024;

/// Of one compile, before any has been measured.
inline constexpr std::uint64_t kUsualCompileBytes = std::uint64_t{256} << 20;

}  // namespace kiln
