#include "tests/support/fake_driver/device.hpp"

#include <cstdio>
#include <cstring>
#include <iterator>

#include "tests/support/fake_driver/variants.hpp"

namespace fake_driver {
namespace {

void destroy_context(CUcontext context) {
  auto& all = state();
  const auto here = [context](const auto& object) { return object.context == context; };
  all.streams.remove_if(here);
  all.events.remove_if(here);
  all.functions.remove_if(here);
  for (auto* kernel : all.kernels.alive()) kernel->functions.erase(context);
  for (auto* library : all.libraries.alive()) library->loaded_in.erase(context);
  all.contexts.remove(context);
}

CUcontext make_context(CUdevice device, bool primary) {
  auto made = std::make_unique<CUctx_st>();
  made->device = device;
  made->primary = primary;
  made->id = state().next_id++;
  return state().contexts.add(std::move(made));
}

CUresult push(CUcontext context) {
  auto& thread = this_thread();
  if (thread.depth == std::size(thread.contexts)) return CUDA_ERROR_INVALID_VALUE;
  thread.contexts[thread.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult create_context(CUcontext* context, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *context = make_context(device, false);
  return push(*context);
}

}  // namespace

Device default_device() {
  return {.attributes = {
              {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
              {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
              {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
              {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
              {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
              {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
              {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
              {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
              {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
              {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
              {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
              {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 128 << 20},
              {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
              {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
              {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
              {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
              {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
              {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
              {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
              {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
              {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
              {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
              {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
              {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
              {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
              {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
              {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
              {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
              {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
              {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1},
              {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
              {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
          }};
}

Device* find_device(CUdevice device) {
  auto& devices = state().devices;
  return device >= 0 && static_cast<std::size_t>(device) < devices.size()
             ? &devices[static_cast<std::size_t>(device)]
             : nullptr;
}

int attribute(CUdevice device, CUdevice_attribute which) {
  const auto* found = find_device(device);
  if (found == nullptr) return 0;
  const auto at = found->attributes.find(which);
  return at != found->attributes.end() ? at->second : 0;
}

CUresult current_context(CUcontext& context) {
  const auto& thread = this_thread();
  if (thread.depth == 0 || thread.contexts[thread.depth - 1] == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  context = thread.contexts[thread.depth - 1];
  return state().contexts.holds(context) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuDeviceGetCount(int* count) {
  FAKE_DRIVER_ENTER(cuDeviceGetCount);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  *count = static_cast<int>(state().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_DRIVER_ENTER(cuDeviceGet);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  FAKE_DRIVER_ENTER(cuDeviceGetAttribute);
  if (value == nullptr || which <= 0 || which >= CU_DEVICE_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute(device, which);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  FAKE_DRIVER_ENTER(cuDeviceGetName);
  if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<std::size_t>(bytes), "NVIDIA H200 (fake %d)", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
  FAKE_DRIVER_ENTER(cuDeviceGetPCIBusId);
  if (id == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  FAKE_DRIVER_ENTER(cuDeviceGetUuid);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "fake driver GPU", sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  FAKE_DRIVER_ENTER(cuDeviceTotalMem);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = kDeviceBytes;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_DRIVER_ENTER(cuDevicePrimaryCtxRetain);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  auto* found = find_device(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (found->primary == nullptr) found->primary = make_context(device, true);
  ++found->primary->retained;
  *context = found->primary;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  FAKE_DRIVER_ENTER(cuDevicePrimaryCtxRelease);
  const std::lock_guard lock(state().mutex);
  auto* found = find_device(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (found->primary == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (--found->primary->retained == 0) {
    destroy_context(found->primary);
    found->primary = nullptr;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  FAKE_DRIVER_ENTER(cuDevicePrimaryCtxGetState);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  const auto* found = find_device(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = found->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  FAKE_DRIVER_ENTER(cuCtxCreate);
  return create_context(context, device);
}
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int, unsigned, CUdevice device) {
  FAKE_DRIVER_ENTER(cuCtxCreate);
  return create_context(context, device);
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  FAKE_DRIVER_ENTER(cuCtxCreate);
  return create_context(context, device);
}

CUresult cuCtxDestroy(CUcontext context) {
  FAKE_DRIVER_ENTER(cuCtxDestroy);
  const std::lock_guard lock(state().mutex);
  if (!state().contexts.holds(context) || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& thread = this_thread();
  if (thread.depth > 0 && thread.contexts[thread.depth - 1] == context) --thread.depth;
  destroy_context(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  FAKE_DRIVER_ENTER(cuCtxGetCurrent);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& thread = this_thread();
  *context = thread.depth > 0 ? thread.contexts[thread.depth - 1] : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  FAKE_DRIVER_ENTER(cuCtxSetCurrent);
  const std::lock_guard lock(state().mutex);
  if (context != nullptr && !state().contexts.holds(context)) return CUDA_ERROR_INVALID_CONTEXT;
  auto& thread = this_thread();
  if (thread.depth > 0) --thread.depth;
  return context != nullptr ? push(context) : CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  FAKE_DRIVER_ENTER(cuCtxPushCurrent);
  const std::lock_guard lock(state().mutex);
  if (!state().contexts.holds(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return push(context);
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  FAKE_DRIVER_ENTER(cuCtxPopCurrent);
  auto& thread = this_thread();
  if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --thread.depth;
  if (context != nullptr) *context = thread.contexts[thread.depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_DRIVER_ENTER(cuCtxGetDevice);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Without the lock: this is asked often, and no context leaves memory before a reset.
  const auto& thread = this_thread();
  if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = thread.contexts[thread.depth - 1]->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  if (context == nullptr) return cuCtxGetDevice(device);
  FAKE_DRIVER_ENTER(cuCtxGetDevice);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (!state().contexts.holds(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  FAKE_DRIVER_ENTER(cuCtxGetId);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (context == nullptr) FAKE_DRIVER_TRY(current_context(context));
  if (!state().contexts.holds(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  FAKE_DRIVER_ENTER(cuCtxSynchronize);
  const std::lock_guard lock(state().mutex);
  CUcontext context = nullptr;
  return current_context(context);
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
  if (context == nullptr) return cuCtxSynchronize();
  FAKE_DRIVER_ENTER(cuCtxSynchronize);
  const std::lock_guard lock(state().mutex);
  return state().contexts.holds(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // extern "C"
