// The clocks of a device, read through NVML, which is opened at run time: a machine without it can
// still build and start this.
//
// Threads: any member from any thread. Lifetime: NVML stays open until the process ends.
#pragma once

#include <memory>
#include <string>

#include "kiln/bench/compare.hpp"
#include "kiln/error.hpp"

namespace kiln::bench {

/// NVML's functions that are used here; tests put in their own.
struct NvmlApi {
  using Device = void*;
  int (*init)() = nullptr;
  int (*driver_version)(char* text, unsigned bytes) = nullptr;
  int (*device_by_pci)(const char* id, Device* device) = nullptr;
  int (*clock)(Device device, int domain, unsigned* mhz) = nullptr;
  int (*most_clock)(Device device, int domain, unsigned* mhz) = nullptr;
  int (*reasons)(Device device, unsigned long long* bits) = nullptr;  ///< null: not known

  /// Errors  unsupported when the library is missing or too old
  static Result<NvmlApi> load();
};

class DeviceClocks {
 public:
  /// Of the device at the PCI address `pci_id`, as the CUDA driver writes it.
  /// Errors  unsupported, with NVML's number
  static Result<DeviceClocks> open(const NvmlApi& nvml, const std::string& pci_id);

  Result<Clock> read() const;

 private:
  DeviceClocks(const NvmlApi& nvml, NvmlApi::Device device) : nvml_(nvml), device_(device) {}
  NvmlApi nvml_;
  NvmlApi::Device device_;
};

/// The installed driver, such as "580.95.05"; empty when NVML does not say.
std::string driver_version_of(const NvmlApi& nvml);

}  // namespace kiln::bench
