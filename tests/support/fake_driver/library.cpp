// Libraries, kernels, functions and their attributes.
#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/kernel.hpp"

namespace fake_driver {
namespace {

// Compiled for this architecture alone from 9.0 on, where the features of one chip are used;
// before, code runs on later chips of its family.
bool runs_on(const Image& image, CUdevice device) {
  const auto major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const auto minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return image.major == major && (image.major >= 9 ? image.minor == minor : image.minor <= minor);
}

bool runs_somewhere(const Image& image) {
  for (std::size_t i = 0; i < state().devices.size(); ++i)
    if (runs_on(image, static_cast<CUdevice>(i))) return true;
  return false;
}

int code_attribute(const Code& code, const Image& image, CUdevice device,
                   CUfunction_attribute which) {
  const auto cap = [device](CUdevice_attribute limit) { return attribute(device, limit); };
  const auto fixed = static_cast<int>(code.static_shared_bytes);
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
      auto most = cap(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      if (code.most_threads > 0) most = std::min(most, static_cast<int>(code.most_threads));
      // Registers go to warps in steps of 8 a thread.
      const auto of_warp = static_cast<int>((code.registers + 7) / 8 * 8 * 32);
      if (of_warp > 0)
        most = std::min(most, cap(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK) / of_warp * 32);
      return most;
    }
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return fixed;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(code.stack_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(code.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return image.major * 10 + image.minor;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return std::max(0, cap(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) - fixed);
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return -1;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return code.needs_cluster ? 1 : 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return static_cast<int>(code.cluster[0]);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return static_cast<int>(code.cluster[1]);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return static_cast<int>(code.cluster[2]);
    default:
      return 0;
  }
}

CUresult check_setting(const Code& code, CUdevice device, CUfunction_attribute which, int value) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const auto most = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) -
                        static_cast<int>(code.static_shared_bytes);
      return value >= 0 && value <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return code.cluster[0] == 0 && value >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // what the code says can't be changed
  }
}

CUresult parameter_info(const Code& code, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= code.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = code.parameters[index].offset;
  if (size != nullptr) *size = code.parameters[index].size;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult resolve(CUfunction handle, Resolved& resolved) {
  auto& all = state();
  if (all.functions.holds(handle)) {
    if (!all.kernels.holds(handle->kernel)) return CUDA_ERROR_INVALID_HANDLE;
    resolved = {handle->kernel, handle};
    return CUDA_SUCCESS;
  }
  auto* kernel = reinterpret_cast<CUkernel>(handle);
  if (!all.kernels.holds(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  resolved = {kernel, nullptr};
  return CUDA_SUCCESS;
}

int attribute(const Resolved& resolved, CUdevice device, CUfunction_attribute which) {
  if (resolved.function != nullptr)
    if (const auto at = resolved.function->attributes.find(which);
        at != resolved.function->attributes.end())
      return at->second;
  const auto& set = resolved.kernel->attributes;
  if (const auto at = set.find({device, which}); at != set.end()) return at->second;
  return code_attribute(*resolved.kernel->code, resolved.kernel->library->image, device, which);
}

bool load_into(CUkernel kernel, CUcontext context) {
  return kernel->library->loaded_in.insert(context).second;
}

CUfunction function_in(CUkernel kernel, CUcontext context) {
  auto& function = kernel->functions[context];
  if (function == nullptr) {
    auto made = std::make_unique<CUfunc_st>();
    made->kernel = kernel;
    made->context = context;
    function = state().functions.add(std::move(made));
  }
  return function;
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  FAKE_DRIVER_ENTER(cuLibraryLoadData);
  const std::lock_guard lock(state().mutex);
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FAKE_DRIVER_TRY(may_block());
  auto made = std::make_unique<CUlib_st>();
  FAKE_DRIVER_TRY(read_image(code, made->image));
  if (!runs_somewhere(made->image)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *library = state().libraries.add(std::move(made));
  for (const auto& each : (*library)->image.kernels) {
    auto kernel = std::make_unique<CUkern_st>();
    kernel->library = *library;
    kernel->code = &each;
    (*library)->kernels.push_back(state().kernels.add(std::move(kernel)));
  }
  if (state().loading_mode == CU_MODULE_EAGER_LOADING)
    for (auto* context : state().contexts.alive())
      if (runs_on((*library)->image, context->device)) (*library)->loaded_in.insert(context);
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  FAKE_DRIVER_ENTER(cuLibraryUnload);
  const std::lock_guard lock(state().mutex);
  if (!state().libraries.holds(library)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_DRIVER_TRY(may_block());
  for (auto* kernel : library->kernels) {
    for (const auto& [context, function] : kernel->functions) state().functions.remove(function);
    state().kernels.remove(kernel);
  }
  state().libraries.remove(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  FAKE_DRIVER_ENTER(cuLibraryGetKernel);
  const std::lock_guard lock(state().mutex);
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!state().libraries.holds(library)) return CUDA_ERROR_INVALID_HANDLE;
  for (auto* each : library->kernels)
    if (each->code->name == name) {
      *kernel = each;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  FAKE_DRIVER_ENTER(cuLibraryGetKernelCount);
  const std::lock_guard lock(state().mutex);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!state().libraries.holds(library)) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  FAKE_DRIVER_ENTER(cuLibraryEnumerateKernels);
  const std::lock_guard lock(state().mutex);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!state().libraries.holds(library)) return CUDA_ERROR_INVALID_HANDLE;
  for (std::size_t i = 0; i < library->kernels.size() && i < count; ++i)
    kernels[i] = library->kernels[i];
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  FAKE_DRIVER_ENTER(cuKernelGetFunction);
  const std::lock_guard lock(state().mutex);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!state().kernels.holds(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  if (!runs_on(kernel->library->image, context->device)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  load_into(kernel, context);
  *function = function_in(kernel, context);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel kernel,
                              CUdevice device) {
  FAKE_DRIVER_ENTER(cuKernelGetAttribute);
  const std::lock_guard lock(state().mutex);
  if (value == nullptr || which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (!state().kernels.holds(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (!runs_on(kernel->library->image, device)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *value = attribute(Resolved{kernel, nullptr}, device, which);
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel,
                              CUdevice device) {
  FAKE_DRIVER_ENTER(cuKernelSetAttribute);
  const std::lock_guard lock(state().mutex);
  if (!state().kernels.holds(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (!runs_on(kernel->library->image, device)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  FAKE_DRIVER_TRY(check_setting(*kernel->code, device, which, value));
  kernel->attributes[{device, which}] = value;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  FAKE_DRIVER_ENTER(cuKernelGetParamInfo);
  const std::lock_guard lock(state().mutex);
  if (!state().kernels.holds(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  return parameter_info(*kernel->code, index, offset, size);
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  FAKE_DRIVER_ENTER(cuKernelGetName);
  const std::lock_guard lock(state().mutex);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!state().kernels.holds(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->code->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
  FAKE_DRIVER_ENTER(cuFuncGetAttribute);
  const std::lock_guard lock(state().mutex);
  if (value == nullptr || which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (!state().functions.holds(function)) return CUDA_ERROR_INVALID_HANDLE;
  *value = attribute(Resolved{function->kernel, function}, function->context->device, which);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  FAKE_DRIVER_ENTER(cuFuncSetAttribute);
  const std::lock_guard lock(state().mutex);
  if (!state().functions.holds(function)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_DRIVER_TRY(check_setting(*function->kernel->code, function->context->device, which, value));
  function->attributes[which] = value;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  FAKE_DRIVER_ENTER(cuFuncGetName);
  const std::lock_guard lock(state().mutex);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!state().functions.holds(function)) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->kernel->code->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  FAKE_DRIVER_ENTER(cuFuncGetParamInfo);
  const std::lock_guard lock(state().mutex);
  if (!state().functions.holds(function)) return CUDA_ERROR_INVALID_HANDLE;
  return parameter_info(*function->kernel->code, index, offset, size);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  FAKE_DRIVER_ENTER(cuModuleGetLoadingMode);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  *mode = state().loading_mode;
  return CUDA_SUCCESS;
}

}  // extern "C"
