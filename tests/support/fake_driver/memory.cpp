// Device memory, which is host memory here, and copies, which are done when they are enqueued.
#include <cstdlib>
#include <cstring>

#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/kernel.hpp"

namespace fake_driver {
namespace {

constexpr std::size_t kAlignment = 256;

CUresult allocate(std::size_t bytes, bool host, std::uintptr_t& address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  FAKE_DRIVER_TRY(may_block());
  auto* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  address = reinterpret_cast<std::uintptr_t>(memory);
  state().allocations[address] = {bytes, context, host};
  return CUDA_SUCCESS;
}

CUresult free_memory(std::uintptr_t address, bool host) {
  if (address == 0) return CUDA_SUCCESS;
  FAKE_DRIVER_TRY(may_block());
  const auto at = state().allocations.find(address);
  if (at == state().allocations.end() || at->second.host != host) return CUDA_ERROR_INVALID_VALUE;
  state().allocations.erase(at);
  std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}

// Null where a device address and what follows it are not memory that was allocated.
unsigned char* device_memory(CUdeviceptr address, std::size_t bytes) {
  auto at = state().allocations.upper_bound(static_cast<std::uintptr_t>(address));
  if (at == state().allocations.begin()) return nullptr;
  --at;
  const auto offset = static_cast<std::uintptr_t>(address) - at->first;
  if (offset > at->second.bytes || at->second.bytes - offset < bytes) return nullptr;
  return reinterpret_cast<unsigned char*>(static_cast<std::uintptr_t>(address));
}

// Does `work`, now or at each launch of the graph that is captured.
template <class Work>
CUresult enqueue(CUstream handle, CUgraphNodeType type, Work work) {
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, context, stream));
  FAKE_DRIVER_TRY(may_enqueue(stream, context));
  if (const auto capture = capture_of(stream))
    append(*capture, stream, type)->work = work;
  else
    work();
  return CUDA_SUCCESS;
}

CUresult copy(CUstream stream, void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && (to == nullptr || from == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, CU_GRAPH_NODE_TYPE_MEMCPY, [=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}

CUresult fill(CUstream stream, CUdeviceptr address, unsigned char value, std::size_t bytes) {
  auto* memory = device_memory(address, bytes);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, CU_GRAPH_NODE_TYPE_MEMSET, [=] { std::memset(memory, value, bytes); });
}

}  // namespace
}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  FAKE_DRIVER_ENTER(cuMemAlloc);
  const std::lock_guard lock(state().mutex);
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uintptr_t made = 0;
  FAKE_DRIVER_TRY(allocate(bytes, false, made));
  *address = made;
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) {
  FAKE_DRIVER_ENTER(cuMemFree);
  const std::lock_guard lock(state().mutex);
  return free_memory(static_cast<std::uintptr_t>(address), false);
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  FAKE_DRIVER_ENTER(cuMemGetInfo);
  const std::lock_guard lock(state().mutex);
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  *total = kDeviceBytes;
  *free = kDeviceBytes;
  for (const auto& [address, allocation] : state().allocations)
    if (!allocation.host && allocation.context->device == context->device)
      *free -= std::min(*free, allocation.bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  FAKE_DRIVER_ENTER(cuMemHostAlloc);
  const std::lock_guard lock(state().mutex);
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uintptr_t made = 0;
  FAKE_DRIVER_TRY(allocate(bytes, true, made));
  *address = reinterpret_cast<void*>(made);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* address) {
  FAKE_DRIVER_ENTER(cuMemFreeHost);
  const std::lock_guard lock(state().mutex);
  return free_memory(reinterpret_cast<std::uintptr_t>(address), true);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* host, unsigned) {
  FAKE_DRIVER_ENTER(cuMemHostGetDevicePointer);
  const std::lock_guard lock(state().mutex);
  if (address == nullptr || device_memory(reinterpret_cast<std::uintptr_t>(host), 0) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<std::uintptr_t>(host);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  FAKE_DRIVER_ENTER(cuMemcpyHtoDAsync);
  const std::lock_guard lock(state().mutex);
  return copy(stream, device_memory(to, bytes), from, bytes);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_DRIVER_ENTER(cuMemcpyDtoHAsync);
  const std::lock_guard lock(state().mutex);
  return copy(stream, to, device_memory(from, bytes), bytes);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_DRIVER_ENTER(cuMemcpyDtoDAsync);
  const std::lock_guard lock(state().mutex);
  return copy(stream, device_memory(to, bytes), device_memory(from, bytes), bytes);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
  FAKE_DRIVER_ENTER(cuMemsetD8Async);
  const std::lock_guard lock(state().mutex);
  return fill(stream, address, value, bytes);
}
// 64-bit writes, which is what they are used for here.
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                            unsigned) {
  FAKE_DRIVER_ENTER(cuStreamBatchMemOp);
  const std::lock_guard lock(state().mutex);
  for (unsigned i = 0; i < count; ++i) {
    if (operations[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) return CUDA_ERROR_NOT_SUPPORTED;
    const auto value = operations[i].writeValue.value64;
    void* to = device_memory(operations[i].writeValue.address, sizeof value);
    if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
    FAKE_DRIVER_TRY(enqueue(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                            [=] { std::memcpy(to, &value, sizeof value); }));
  }
  return CUDA_SUCCESS;
}

// Those without a stream wait for the device, which a capture forbids.
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  FAKE_DRIVER_ENTER(cuMemcpyHtoD);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(may_block());
  return copy(nullptr, device_memory(to, bytes), from, bytes);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  FAKE_DRIVER_ENTER(cuMemcpyDtoH);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(may_block());
  return copy(nullptr, to, device_memory(from, bytes), bytes);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  FAKE_DRIVER_ENTER(cuMemcpyDtoD);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(may_block());
  return copy(nullptr, device_memory(to, bytes), device_memory(from, bytes), bytes);
}
CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t bytes) {
  FAKE_DRIVER_ENTER(cuMemsetD8);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(may_block());
  return fill(nullptr, address, value, bytes);
}

}  // extern "C"
