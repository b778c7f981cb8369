#include "runtime/bench/bench_driver.hpp"

#include <dlfcn.h>

#include <string>

namespace kiln::bench {

#define KILN_BENCH_STRING_INNER(text) #text
#define KILN_BENCH_STRING(text) KILN_BENCH_STRING_INNER(text)

Result<std::shared_ptr<const BenchDriver>> BenchDriver::load() {
  auto driver = std::make_shared<BenchDriver>();
  KILN_TRY(driver->api, DriverApi::load());
  // Opened already, by the call above.
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto find = library == nullptr ? nullptr
                                       : reinterpret_cast<decltype(&::cuGetProcAddress)>(
                                             ::dlsym(library, KILN_BENCH_STRING(cuGetProcAddress)));
  const auto entry = [&](const char* name, int version, auto& function) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    if (find == nullptr ||
        find(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found) != CUDA_SUCCESS)
      return false;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    return function != nullptr;
  };
#define KILN_FUNCTION(name, version)        \
  if (!entry(#name, version, driver->name)) \
    return Error(ErrorCode::no_device,      \
                 "the CUDA driver is too old to benchmark with: it lacks " #name "; update it");
  KILN_BENCH_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION
  return std::shared_ptr<const BenchDriver>(std::move(driver));
}

}  // namespace kiln::bench
