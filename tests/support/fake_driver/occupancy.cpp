// How many blocks and clusters fit: the limits of threads, registers and shared memory, without the
// placement of clusters among the chip's parts.
#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/kernel.hpp"

namespace fake_driver {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kRegisterStep = 256;  // a warp's registers are handed out in such steps
constexpr unsigned kSchedulers = 4;      // each has its share of the registers
constexpr std::size_t kSharedStep = 128;

CUresult blocks_that_fit(int* blocks, CUfunction handle, int threads, size_t dynamic) {
  const std::lock_guard lock(state().mutex);
  if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  Resolved resolved;
  FAKE_DRIVER_TRY(resolve(handle, resolved));
  *blocks =
      blocks_per_multiprocessor(resolved, context->device, static_cast<unsigned>(threads), dynamic);
  return CUDA_SUCCESS;
}

// Blocks of the configuration that are on the device at once.
CUresult resident_blocks(CUfunction handle, const CUlaunchConfig& config, int& blocks,
                         Resolved& resolved) {
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  FAKE_DRIVER_TRY(resolve(handle, resolved));
  if (attribute(context->device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  blocks = blocks_per_multiprocessor(resolved, context->device,
                                     config.blockDimX * config.blockDimY * config.blockDimZ,
                                     config.sharedMemBytes) *
           attribute(context->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return CUDA_SUCCESS;
}

}  // namespace

int blocks_per_multiprocessor(const Resolved& resolved, CUdevice device, unsigned threads,
                              std::size_t dynamic) {
  const auto limit = [device](CUdevice_attribute which) {
    return static_cast<unsigned>(attribute(device, which));
  };
  const auto of_kernel = [&](CUfunction_attribute which) {
    return static_cast<unsigned>(attribute(resolved, device, which));
  };
  if (threads == 0 || threads > of_kernel(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) ||
      dynamic > of_kernel(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))
    return 0;
  const auto warps = (threads + kWarp - 1) / kWarp;
  auto blocks = std::min(limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
                         limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / kWarp / warps);
  if (const auto registers = of_kernel(CU_FUNC_ATTRIBUTE_NUM_REGS); registers > 0) {
    const auto of_warp = (registers * kWarp + kRegisterStep - 1) / kRegisterStep * kRegisterStep;
    const auto of_scheduler =
        limit(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) / kSchedulers / of_warp;
    blocks = std::min(blocks, of_scheduler * kSchedulers / warps);
  }
  const auto shared = of_kernel(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) + dynamic +
                      limit(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  if (const auto taken = (shared + kSharedStep - 1) / kSharedStep * kSharedStep; taken > 0)
    blocks = std::min(blocks,
                      static_cast<unsigned>(
                          limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / taken));
  return static_cast<int>(blocks);
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t dynamic) {
  FAKE_DRIVER_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return blocks_that_fit(blocks, function, threads, dynamic);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int threads, size_t dynamic,
                                                              unsigned) {
  FAKE_DRIVER_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return blocks_that_fit(blocks, function, threads, dynamic);
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                      const CUlaunchConfig* config) {
  FAKE_DRIVER_ENTER(cuOccupancyMaxActiveClusters);
  const std::lock_guard lock(state().mutex);
  if (clusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int blocks = 0;
  Resolved resolved;
  FAKE_DRIVER_TRY(resident_blocks(function, *config, blocks, resolved));
  unsigned size = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& dims = config->attrs[i].value.clusterDim;
      size = dims.x * dims.y * dims.z;
    }
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  // As seen of driver 580 on an H200: beyond 8 blocks the size is invalid until the kernel allows
  // it; beyond 16 there is then no room for any.
  const bool any_size = attribute(resolved, context->device,
                                  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0;
  if (size > 8 && !any_size) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  *clusters = size > 16 ? 0 : blocks / static_cast<int>(size);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function,
                                            const CUlaunchConfig* config) {
  FAKE_DRIVER_ENTER(cuOccupancyMaxPotentialClusterSize);
  const std::lock_guard lock(state().mutex);
  if (size == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int blocks = 0;
  Resolved resolved;
  FAKE_DRIVER_TRY(resident_blocks(function, *config, blocks, resolved));
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  const auto most =
      attribute(resolved, context->device, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0
          ? 16
          : 8;
  *size = std::min(most, blocks);
  return CUDA_SUCCESS;
}

}  // extern "C"
