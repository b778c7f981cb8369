#include "bench/machine.hpp"

#include <cuda.h>
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kiln/options.hpp"
#include "runtime/nvrtc_search.hpp"

namespace kiln::bench {
namespace {

using nlohmann::ordered_json;

/// The rest of the first line of `file` that starts with `label`, without separators; or null.
ordered_json value_in(const char* file, const std::string& label) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(label)) continue;
    const auto start = line.find_first_not_of(" \t:", label.size());
    if (start != std::string::npos) return line.substr(start);
  }
  return nullptr;
}

/// The first device's name, and which CUDA the driver is for; null without a driver.
ordered_json gpu_name() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return nullptr;
  const auto initialise = reinterpret_cast<decltype(&::cuInit)>(::dlsym(driver, "cuInit"));
  const auto name_of =
      reinterpret_cast<decltype(&::cuDeviceGetName)>(::dlsym(driver, "cuDeviceGetName"));
  char name[256] = {};
  if (initialise == nullptr || name_of == nullptr || initialise(0) != CUDA_SUCCESS ||
      name_of(name, sizeof(name), 0) != CUDA_SUCCESS)
    return nullptr;
  return std::string(name);
}

ordered_json allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ordered_json numbers = ordered_json::array();
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return nullptr;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) numbers.push_back(cpu);
  return numbers;
}

}  // namespace

ordered_json describe_run() {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const auto allowed = allowed_processors();
  const auto search = find_nvrtc({}, process_environment());
  ordered_json toolkit = nullptr;
  if (search.found) toolkit = search.found->toolchain().to_text();
  return {{"machine",
           {{"cpu", value_in("/proc/cpuinfo", "model name")},
            {"cores", online},
            {"gpu", gpu_name()},
            {"driver", value_in("/proc/driver/nvidia/version", "NVRM version")}}},
          {"toolkit", toolkit},
          {"compiler", KILN_BENCH_COMPILER},
          {"build_type", KILN_BENCH_BUILD_TYPE},
          {"commit", KILN_BENCH_COMMIT},
          {"pinned", allowed.is_array() && static_cast<long>(allowed.size()) < online},
          {"processors", allowed}};
}

}  // namespace kiln::bench
