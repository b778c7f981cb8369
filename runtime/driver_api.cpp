#include "runtime/driver_api.hpp"

#include <dlfcn.h>
#include <link.h>

#include <utility>

#include "runtime/fork_generation.hpp"
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

// What to look at where the driver does not start, by what it answers; empty where that is plain.
std::string cure_of_start(CUresult result, void* library) {
  const link_map* map = nullptr;
  const bool known = ::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
  const std::string path = known ? map->l_name : kDriverLibrary;
  switch (result) {
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return "GPUs with an NVSwitch wait for nvidia-fabricmanager: it must run on the host, in the "
             "driver's own version, and takes a while after a boot";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return path +
             " is not of the version of the kernel's driver: after an update of the driver "
             "restart the host or the container; a copy in an image must go";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return path +
             " is of a forward-compatibility package (cuda-compat), which this GPU does not "
             "take: take its directory out of LD_LIBRARY_PATH and the loader's settings";
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
      return "this process is a client of MPS: see whether the nvidia-cuda-mps-control of its "
             "CUDA_MPS_PIPE_DIRECTORY runs and has room for another client";
    case CUDA_ERROR_UNKNOWN:
    case CUDA_ERROR_OPERATING_SYSTEM:
      return "the driver could not open its devices: see that /dev/nvidia-uvm and its siblings are "
             "there and may be opened (nvidia-modprobe -u on the host), in a container too";
    default:
      return {};
  }
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
    if (result == CUDA_ERROR_NOT_INITIALIZED) return forked_error();
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
      return forked_error();
    default:
      if (auto cure = cure_of_start(result, library); !cure.empty())
        return Error::from_driver("cuInit", result, api->name_of(result), std::move(cure));
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
