#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "kiln/bench/receipt.hpp"
#include "kiln/version.hpp"
#include "runtime/bench/clocks.hpp"

namespace kiln::bench {
namespace {

std::string processor_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const auto start = line.find_first_not_of(" \t:", std::string("model name").size());
    if (start != std::string::npos) return line.substr(start);
  }
  return {};
}

bool is_pinned() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 &&
         CPU_COUNT(&set) < ::sysconf(_SC_NPROCESSORS_ONLN);
}

}  // namespace

Provenance provenance() {
  Provenance result{.processor = processor_model(),
                    .cuda_driver = driver_version(),
                    .compiler = KILN_BENCH_COMPILER,
                    .commit = KILN_BENCH_COMMIT,
                    .pinned = is_pinned()};
  if (const auto nvml = NvmlApi::load()) result.driver = driver_version_of(*nvml);
  return result;
}

}  // namespace kiln::bench
