#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "kiln/device_info.hpp"

namespace kiln {
namespace {

Error no_device(std::string why) {
  return Error(ErrorCode::no_device, "the GPUs of this machine cannot be listed: " +
                                         std::move(why) + "; name the architectures instead");
}

// The functions of NVML that are used here.
struct Nvml {
  using Device = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned* count) = nullptr;
  int (*device_at)(unsigned index, Device* device) = nullptr;
  int (*capability)(Device device, int* major, int* minor) = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Result<std::vector<std::string>> architectures_from(const Nvml& nvml) {
  unsigned count = 0;
  if (const int result = nvml.device_count(&count); result != 0)
    return no_device("nvmlDeviceGetCount answers " + std::to_string(result));
  std::vector<std::string> names;
  for (unsigned index = 0; index < count; ++index) {
    Nvml::Device device = nullptr;
    int major = 0, minor = 0;
    // One that this process may not use, say.
    if (nvml.device_at(index, &device) != 0 || nvml.capability(device, &major, &minor) != 0)
      continue;
    auto name = architecture_of(major, minor);
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  if (count == 0) return no_device("NVML sees no GPU");
  if (names.empty())
    return no_device("NVML sees GPUs, " + std::to_string(count) +
                     " in all, and tells the compute capability of none");
  return names;
}

}  // namespace

Result<std::vector<std::string>> installed_architectures() {
  // Never closed, like the driver.
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return no_device("libnvidia-ml.so.1, which comes with the NVIDIA driver, cannot be opened (" +
                     std::string(why == nullptr ? "no reason given" : why) + ")");
  }
  Nvml nvml;
  if (!find(library, "nvmlInit_v2", nvml.init) || !find(library, "nvmlShutdown", nvml.shutdown) ||
      !find(library, "nvmlDeviceGetCount_v2", nvml.device_count) ||
      !find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.device_at) ||
      !find(library, "nvmlDeviceGetCudaComputeCapability", nvml.capability))
    return no_device("libnvidia-ml.so.1 is too old");
  if (const int result = nvml.init(); result != 0)
    return no_device("nvmlInit answers " + std::to_string(result));
  auto names = architectures_from(nvml);
  nvml.shutdown();  // NVML counts who uses it
  return names;
}

}  // namespace kiln
