#include "runtime/driver_api.hpp"

#include <dlfcn.h>

#include "runtime/version_text.hpp"

// cuda.h renames some functions by macro (cuGetProcAddress is cuGetProcAddress_v2), so the symbol's
// name is taken after expansion, or an old ABI would be loaded.
#define KILN_STRING_INNER(text) #text
#define KILN_STRING(text) KILN_STRING_INNER(text)

namespace kiln {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";

Error no_driver(std::string why) {
  return Error(
      ErrorCode::no_device,
      "no CUDA driver: " + std::move(why) +
          ". Compiling and the cache work without one; to launch, install the NVIDIA driver"
          " and, in a container, pass the GPU in");
}

}  // namespace

Result<std::shared_ptr<const DriverApi>> DriverApi::load() {
  // Never closed: the driver does not support being unloaded.
  void* library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return no_driver(reason != nullptr ? reason : kDriverLibrary);
  }
  const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(
      ::dlsym(library, KILN_STRING(cuGetProcAddress)));
  if (find == nullptr) return no_driver("libcuda.so.1 is older than CUDA 12, which Kiln needs");

  auto api = std::make_shared<DriverApi>();
  const auto entry = [&](const char* name, int version, auto& function) -> Status {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    const auto result = find(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    if (result == CUDA_SUCCESS && address != nullptr) return {};
    function = nullptr;
    // The toolkit's stub library answers every call with this.
    if (result == CUDA_ERROR_STUB_LIBRARY)
      return no_driver("libcuda.so.1 is the CUDA toolkit's stub, not a driver");
    return no_driver(std::string("it lacks ") + name + " of CUDA " + cuda_version_text(version));
  };
#define KILN_FUNCTION(name, version) \
  if (auto status = entry(#name, version, api->name); !status) return status.error();
  KILN_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION
#define KILN_FUNCTION(name, version) \
  static_cast<void>(entry("cu" #name, version, api->cu##name##_v##version));
  KILN_VERSIONED_DRIVER_FUNCTIONS(KILN_FUNCTION)
#undef KILN_FUNCTION

  if (api->cuDriverGetVersion(&api->loaded_version) != CUDA_SUCCESS) api->loaded_version = 0;
  switch (const auto result = api->cuInit(0)) {
    case CUDA_SUCCESS:
      break;
    case CUDA_ERROR_STUB_LIBRARY:
      return no_driver("libcuda.so.1 is the CUDA toolkit's stub, not a driver");
    case CUDA_ERROR_NO_DEVICE:
      return Error(ErrorCode::no_device,
                   "the CUDA driver sees no device: check nvidia-smi and CUDA_VISIBLE_DEVICES");
    case CUDA_ERROR_NOT_INITIALIZED:
      return Error(ErrorCode::no_device,
                   "the CUDA driver cannot be used here: this process was forked after CUDA was "
                   "initialised. Fork before the first use of CUDA, or start a new process");
    default:
      return api->failed("cuInit", result);
  }
  return std::shared_ptr<const DriverApi>(std::move(api));
}

const char* DriverApi::name_of(CUresult result) const noexcept {
  const char* name = nullptr;
  if (cuGetErrorName != nullptr) cuGetErrorName(result, &name);
  return name;
}

int installed_driver_version() noexcept {
  void* library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  const auto query =
      reinterpret_cast<decltype(&::cuDriverGetVersion)>(::dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (query == nullptr || query(&version) != CUDA_SUCCESS) return 0;
  return version;
}

}  // namespace kiln
