#include "runtime/bench/clocks.hpp"

#include <dlfcn.h>

namespace kiln::bench {
namespace {

// Of nvmlClockType_t.
constexpr int kSmClock = 1;

Error unsupported(std::string what) {
  return {ErrorCode::unsupported, std::move(what)};
}

Error failed(const char* call, int result) {
  return unsupported(std::string(call) + " answers " + std::to_string(result) + " (nvmlReturn_t)");
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<NvmlApi> NvmlApi::load() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return unsupported(
        "NVML is missing: libnvidia-ml.so.1 cannot be opened; it comes with the NVIDIA driver");
  NvmlApi nvml;
  if (!find(library, "nvmlInit_v2", nvml.init) ||
      !find(library, "nvmlSystemGetDriverVersion", nvml.driver_version) ||
      !find(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml.device_by_pci) ||
      !find(library, "nvmlDeviceGetClockInfo", nvml.clock) ||
      !find(library, "nvmlDeviceGetMaxClockInfo", nvml.most_clock))
    return unsupported("NVML is too old: it lacks a function that tells clocks");
  // The older name of the same.
  if (!find(library, "nvmlDeviceGetCurrentClocksEventReasons", nvml.reasons))
    find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.reasons);
  return nvml;
}

Result<DeviceClocks> DeviceClocks::open(const NvmlApi& nvml, const std::string& pci_id) {
  if (const int result = nvml.init(); result != 0) return failed("nvmlInit", result);
  NvmlApi::Device device = nullptr;
  if (const int result = nvml.device_by_pci(pci_id.c_str(), &device); result != 0)
    return failed("nvmlDeviceGetHandleByPciBusId", result);
  return DeviceClocks(nvml, device);
}

Result<Clock> DeviceClocks::read() const {
  Clock clock;
  if (const int result = nvml_.clock(device_, kSmClock, &clock.sm_mhz); result != 0)
    return failed("nvmlDeviceGetClockInfo", result);
  if (const int result = nvml_.most_clock(device_, kSmClock, &clock.most_sm_mhz); result != 0)
    return failed("nvmlDeviceGetMaxClockInfo", result);
  unsigned long long reasons = 0;
  if (nvml_.reasons != nullptr && nvml_.reasons(device_, &reasons) == 0)
    clock.throttle_reasons = reasons;
  return clock;
}

std::string driver_version_of(const NvmlApi& nvml) {
  char text[128] = {};
  if (nvml.init() != 0 || nvml.driver_version(text, sizeof(text)) != 0) return {};
  return text;
}

}  // namespace kiln::bench
