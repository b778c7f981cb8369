// What Device and Buffer hold.
//
// Threads: one at a time.
#pragma once

#include <optional>

#include "kiln/bench/device.hpp"
#include "runtime/bench/bench_driver.hpp"

namespace kiln::bench {

/// A primary context, current on the thread that opened it. It is retained until the process ends:
/// the kernels of a Runtime that outlives the Device are loaded in it.
struct Context {
  std::shared_ptr<const BenchDriver> driver;
};

struct Buffer::State {
  ~State() {
    if (address != 0) context->driver->cuMemFree(address);
  }
  std::shared_ptr<const Context> context;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

struct Device::State {
  std::shared_ptr<const Context> context;
  Runtime* runtime = nullptr;
  int ordinal = 0;
  std::string name;
  std::string pci_id;
  std::size_t l2_bytes = 0;
};

}  // namespace kiln::bench
