// Launches: checked and recorded, or only counted.
#include <cstring>

#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/kernel.hpp"

namespace fake_driver {
namespace {

constexpr unsigned kPortableCluster = 8;
constexpr unsigned kLargestCluster = 16;

std::uint64_t volume(const unsigned (&extent)[3]) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2];
}

const CUlaunchAttributeValue* find(const KernelLaunch& launch, CUlaunchAttributeID id) {
  for (const auto& each : launch.attributes)
    if (each.id == id) return &each.value;
  return nullptr;
}

CUresult check_cluster(const KernelLaunch& launch, const Resolved& resolved, CUdevice device) {
  const auto* given = find(launch, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  const auto required = [&](CUfunction_attribute which) {
    return static_cast<unsigned>(attribute(resolved, device, which));
  };
  unsigned cluster[3] = {required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
                         required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
                         required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
  const bool fixed = cluster[0] != 0;
  if (given != nullptr) {
    const auto& dims = given->clusterDim;
    if (fixed && (dims.x != cluster[0] || dims.y != cluster[1] || dims.z != cluster[2]))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    cluster[0] = dims.x;
    cluster[1] = dims.y;
    cluster[2] = dims.z;
  } else if (!fixed) {
    return required(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) != 0
               ? CUDA_ERROR_INVALID_CLUSTER_SIZE
               : CUDA_SUCCESS;
  }
  if (volume(cluster) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  for (int i = 0; i < 3; ++i)
    if (launch.grid[i] % cluster[i] != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto most = required(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0
                        ? kLargestCluster
                        : kPortableCluster;
  return volume(cluster) <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult check_attributes(const KernelLaunch& launch, const Resolved& resolved, CUdevice device) {
  for (const auto& each : launch.attributes) {
    if (each.id < CU_LAUNCH_ATTRIBUTE_IGNORE ||
        each.id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
      return CUDA_ERROR_INVALID_VALUE;
    if (each.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (const auto* value = find(launch, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
      value != nullptr && value->cooperative != 0) {
    const auto blocks = blocks_per_multiprocessor(
        resolved, device, static_cast<unsigned>(volume(launch.block)), launch.shared_bytes);
    const auto fit =
        static_cast<std::uint64_t>(blocks) *
        static_cast<std::uint64_t>(attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    if (volume(launch.grid) > fit) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return check_cluster(launch, resolved, device);
}

CUresult launch_slowly(const CUlaunchConfig& config, CUfunction handle, void** parameters,
                       void** extra) {
  const std::lock_guard lock(state().mutex);
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(config.hStream, context, stream));
  KernelLaunch launch;
  FAKE_DRIVER_TRY(make_launch(config, handle, parameters, extra, context, launch));
  FAKE_DRIVER_TRY(may_enqueue(stream, context));
  if (const auto capture = capture_of(stream)) {
    append(*capture, stream, CU_GRAPH_NODE_TYPE_KERNEL)->launch = launch;
    record(launch, Origin::captured, config.hStream);
  } else {
    record(launch, Origin::direct, config.hStream);
  }
  return CUDA_SUCCESS;
}

// Apart, so that a launch that is only counted saves no registers.
[[gnu::noinline]] CUresult launch_with_attention(const CUlaunchConfig* config, CUfunction handle,
                                                 void** parameters, void** extra) {
  FAKE_DRIVER_ENTER(cuLaunchKernelEx);
  if ((attention.load(std::memory_order_relaxed) & (kRecording | kCapturing)) == 0)
    return CUDA_SUCCESS;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch_slowly(*config, handle, parameters, extra);
}

}  // namespace

CUresult read_parameters(void** parameters, void** extra, KernelLaunch& launch) {
  const auto& wanted = launch.kernel->code->parameters;
  std::size_t total = 0;
  for (const auto& each : wanted) total = std::max(total, each.offset + each.size);
  launch.parameters.assign(total, 0);
  if (extra == nullptr) {
    if (parameters == nullptr && !wanted.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(launch.parameters.data() + wanted[i].offset, parameters[i], wanted[i].size);
    }
    return CUDA_SUCCESS;
  }
  if (parameters != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const void* buffer = nullptr;
  const std::size_t* bytes = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[1];
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      bytes = static_cast<const std::size_t*>(extra[1]);
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (buffer == nullptr || bytes == nullptr || *bytes < total) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(launch.parameters.data(), buffer, total);
  return CUDA_SUCCESS;
}

CUresult check(const KernelLaunch& launch) {
  const Resolved resolved{launch.kernel, launch.function};
  const auto device = launch.context->device;
  if (launch.function != nullptr && launch.function->context != launch.context)
    return CUDA_ERROR_INVALID_HANDLE;
  const auto& image = launch.kernel->library->image;
  if (image.major != attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR))
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  constexpr CUdevice_attribute kMostBlocks[] = {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                                                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
  constexpr CUdevice_attribute kMostThreads[] = {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                                                 CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                                                 CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z};
  for (int i = 0; i < 3; ++i)
    if (launch.grid[i] == 0 || launch.block[i] == 0 ||
        launch.grid[i] > static_cast<unsigned>(attribute(device, kMostBlocks[i])) ||
        launch.block[i] > static_cast<unsigned>(attribute(device, kMostThreads[i])))
      return CUDA_ERROR_INVALID_VALUE;
  const auto limit = [&](CUfunction_attribute which) {
    return static_cast<unsigned>(attribute(resolved, device, which));
  };
  if (volume(launch.block) >
      static_cast<unsigned>(attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)))
    return CUDA_ERROR_INVALID_VALUE;
  if (volume(launch.block) > limit(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
    return launch.kernel->code->most_threads != 0 ? CUDA_ERROR_INVALID_VALUE
                                                  : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (launch.shared_bytes > limit(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))
    return CUDA_ERROR_INVALID_VALUE;
  return check_attributes(launch, resolved, device);
}

CUresult make_launch(const CUlaunchConfig& config, CUfunction handle, void** parameters,
                     void** extra, CUcontext context, KernelLaunch& launch) {
  if (config.numAttrs > 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Resolved resolved;
  FAKE_DRIVER_TRY(resolve(handle, resolved));
  launch.kernel = resolved.kernel;
  launch.function = resolved.function;
  launch.context = context;
  const unsigned grid[3] = {config.gridDimX, config.gridDimY, config.gridDimZ};
  const unsigned block[3] = {config.blockDimX, config.blockDimY, config.blockDimZ};
  std::copy(grid, grid + 3, launch.grid);
  std::copy(block, block + 3, launch.block);
  launch.shared_bytes = config.sharedMemBytes;
  launch.attributes.assign(config.attrs, config.attrs + config.numAttrs);
  FAKE_DRIVER_TRY(read_parameters(parameters, extra, launch));
  return check(launch);
}

void record(const KernelLaunch& launch, Origin origin, CUstream stream) {
  const bool loaded = load_into(launch.kernel, launch.context);
  if ((attention.load(std::memory_order_relaxed) & kRecording) == 0) return;
  LaunchRecord record{.launch = launch,
                      .kernel = launch.kernel->code->name,
                      .origin = origin,
                      .stream = stream,
                      .loaded_module = loaded};
  for (const auto& each : launch.kernel->code->parameters) {
    record.offsets.push_back(each.offset);
    record.sizes.push_back(each.size);
  }
  state().launches.push_back(std::move(record));
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  auto* counts = thread_state.counts;
  if (counts == nullptr || attention.load(std::memory_order_acquire) != 0)
    return launch_with_attention(config, function, parameters, extra);
  counts->calls[static_cast<unsigned>(Function::cuLaunchKernelEx)].fetch_add(
      1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  FAKE_DRIVER_ENTER(cuLaunchKernel);
  const CUlaunchConfig config{grid_x,  grid_y,       grid_z, block_x, block_y,
                              block_z, shared_bytes, stream, nullptr, 0};
  return launch_slowly(config, function, parameters, extra);
}

}  // extern "C"
