// How a program finds the driver's functions, starts it and asks for its version and its errors.
#include <cudaTypedefs.h>

#include <string_view>
#include <type_traits>

#include "tests/support/fake_driver/state.hpp"
#include "tests/support/fake_driver/variants.hpp"

namespace fake_driver {
namespace {

// The version in the list and the signature that cuda.h declares belong together.
#define FAKE_DRIVER_FUNCTION(name, version) \
  static_assert(std::is_same_v<PFN_##name##_v##version, decltype(&::name)>, #name);
FAKE_DRIVER_FUNCTIONS(FAKE_DRIVER_FUNCTION)
#undef FAKE_DRIVER_FUNCTION

struct Variant {
  std::string_view name;
  int version;
  Function function;
  void* address;
};

const Variant kVariants[] = {
#define FAKE_DRIVER_FUNCTION(name, version) \
  {#name, version, Function::name, reinterpret_cast<void*>(&::name)},
    FAKE_DRIVER_FUNCTIONS(FAKE_DRIVER_FUNCTION)
#undef FAKE_DRIVER_FUNCTION
        {"cuCtxCreate", 3020, Function::cuCtxCreate, reinterpret_cast<void*>(&cuCtxCreate_v2)},
    {"cuCtxCreate", 11040, Function::cuCtxCreate, reinterpret_cast<void*>(&cuCtxCreate_v3)},
    // From here on with another signature: who asks for too new a version gets a surprise.
    {"cuCtxGetDevice", 13000, Function::cuCtxGetDevice,
     reinterpret_cast<void*>(&cuCtxGetDevice_v2)},
    {"cuCtxSynchronize", 13000, Function::cuCtxSynchronize,
     reinterpret_cast<void*>(&cuCtxSynchronize_v2)},
    {"cuStreamGetCaptureInfo", 11030, Function::cuStreamGetCaptureInfo,
     reinterpret_cast<void*>(&cuStreamGetCaptureInfo_v2)},
    {"cuEventElapsedTime", 2000, Function::cuEventElapsedTime,
     reinterpret_cast<void*>(&fake_driver_event_elapsed_time_v1)},
    {"cuGraphInstantiate", 12000, Function::cuGraphInstantiateWithFlags,
     reinterpret_cast<void*>(&cuGraphInstantiateWithFlags)},
};

constexpr std::pair<CUresult, const char*> kResults[] = {
#define FAKE_DRIVER_RESULT(result) {result, #result},
    FAKE_DRIVER_RESULT(CUDA_SUCCESS)                             //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_VALUE)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_OUT_OF_MEMORY)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_NOT_INITIALIZED)               //
    FAKE_DRIVER_RESULT(CUDA_ERROR_DEINITIALIZED)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STUB_LIBRARY)                  //
    FAKE_DRIVER_RESULT(CUDA_ERROR_DEVICE_UNAVAILABLE)            //
    FAKE_DRIVER_RESULT(CUDA_ERROR_NO_DEVICE)                     //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_DEVICE)                //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_IMAGE)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_CONTEXT)               //
    FAKE_DRIVER_RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU)             //
    FAKE_DRIVER_RESULT(CUDA_ERROR_ECC_UNCORRECTABLE)             //
    FAKE_DRIVER_RESULT(CUDA_ERROR_UNSUPPORTED_LIMIT)             //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_PTX)                   //
    FAKE_DRIVER_RESULT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)       //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_SOURCE)                //
    FAKE_DRIVER_RESULT(CUDA_ERROR_FILE_NOT_FOUND)                //
    FAKE_DRIVER_RESULT(CUDA_ERROR_OPERATING_SYSTEM)              //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_HANDLE)                //
    FAKE_DRIVER_RESULT(CUDA_ERROR_ILLEGAL_STATE)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_NOT_FOUND)                     //
    FAKE_DRIVER_RESULT(CUDA_ERROR_NOT_READY)                     //
    FAKE_DRIVER_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS)               //
    FAKE_DRIVER_RESULT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)       //
    FAKE_DRIVER_RESULT(CUDA_ERROR_LAUNCH_TIMEOUT)                //
    FAKE_DRIVER_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED)          //
    FAKE_DRIVER_RESULT(CUDA_ERROR_LAUNCH_FAILED)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)  //
    FAKE_DRIVER_RESULT(CUDA_ERROR_NOT_PERMITTED)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_NOT_SUPPORTED)                 //
    FAKE_DRIVER_RESULT(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)        //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)    //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)    //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE)          //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)      //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)       //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)      //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)       //
    FAKE_DRIVER_RESULT(CUDA_ERROR_CAPTURED_EVENT)                //
    FAKE_DRIVER_RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)   //
    FAKE_DRIVER_RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)     //
    FAKE_DRIVER_RESULT(CUDA_ERROR_INVALID_CLUSTER_SIZE)          //
    FAKE_DRIVER_RESULT(CUDA_ERROR_FUNCTION_NOT_LOADED)           //
    FAKE_DRIVER_RESULT(CUDA_ERROR_UNKNOWN)                       //
#undef FAKE_DRIVER_RESULT
};

CUresult name_of(CUresult result, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [known, name] : kResults)
    if (known == result) {
      *text = name;
      return CUDA_SUCCESS;
    }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult find_function(const char* symbol, void** address, int version, cuuint64_t,
                       CUdriverProcAddressQueryResult* status) {
  if (const auto stop = enter(Function::cuGetProcAddress); stop != CUDA_SUCCESS) return stop;
  if (symbol == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *address = nullptr;
  auto found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const std::lock_guard lock(state().mutex);
  const auto driver_version = state().driver_version;
  if (version > driver_version) return CUDA_ERROR_INVALID_VALUE;
  int newest = 0;
  for (const auto& variant : kVariants) {
    if (variant.name != symbol || variant.version > driver_version || hidden(variant.function))
      continue;
    if (variant.version > version) {
      if (*address == nullptr) found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    } else if (variant.version > newest) {
      newest = variant.version;
      *address = variant.address;
      found = CU_GET_PROC_ADDRESS_SUCCESS;
    }
  }
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fake_driver

using fake_driver::find_function;
using fake_driver::Function;
using fake_driver::state;

extern "C" {

// dlsym asks this each time that it is asked for the function, so that a driver older than CUDA 12
// can be played: it has no such symbol.
static decltype(&find_function) fake_driver_resolve_entry() {
  bool there = !fake_driver::hidden(Function::cuGetProcAddress);
  {
    const std::lock_guard lock(state().mutex);
    there = there && state().driver_version >= 12000;
  }
  return there ? &find_function : nullptr;
}
CUresult cuGetProcAddress(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)
    __attribute__((ifunc("fake_driver_resolve_entry")));

CUresult cuInit(unsigned flags) {
  FAKE_DRIVER_ENTER(cuInit);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (state().devices.empty()) return CUDA_ERROR_NO_DEVICE;
  fake_driver::note_initialised();
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  FAKE_DRIVER_ENTER(cuDriverGetVersion);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  *version = state().driver_version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  FAKE_DRIVER_ENTER(cuGetErrorName);
  return fake_driver::name_of(error, text);
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  FAKE_DRIVER_ENTER(cuGetErrorString);
  return fake_driver::name_of(error, text);
}

}  // extern "C"
