#include "runtime/loaded_kernel.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/fork_generation.hpp"
#include "runtime/version_text.hpp"

namespace kiln {
namespace {

constexpr std::uintptr_t kImageAlignment = 16;

std::string subject(const ArtifactFacts& facts) {
  return "kernel " + facts.kernel + " (" + facts.architecture + ")";
}

// These are the driver's ways of saying "not for this device or this driver".
bool means_unsupported(CUresult result) {
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE ||
         result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || result == CUDA_ERROR_INVALID_SOURCE;
}

// What to look at where a call for a kernel fails; empty where the driver's answer says it.
std::string_view cure_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ": the device has no memory left for it; load kernels, as warmup() does, before the "
             "memory is given away";
    case CUDA_ERROR_INVALID_HANDLE:
      return ": its stream, graph or node was destroyed, or is of another context";
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return ": make a context of its device current on this thread";
    // These come late, with whatever is called next.
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return ": any work before it in this context may be what failed, and the context is lost; "
             "with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, it shows which";
    default:
      return {};
  }
}

}  // namespace

Library::Library(std::shared_ptr<const DriverApi> driver, Artifact artifact,
                 std::weak_ptr<const LogSink> log)
    : driver_(std::move(driver)),
      artifact_(std::move(artifact)),
      log_(std::move(log)),
      generation_(fork_generation()) {}

Error Library::failed(const char* call, CUresult result) const {
  return Error::from_driver(call, static_cast<int>(result), driver_->name_of(result),
                            subject(artifact_.facts).append(cure_of(result)));
}

namespace {

// The driver's view of the parameters, where it tells it, against the table of the cubin that
// arguments are packed by.
Status check_parameters(const Library& library) {
  const auto& api = library.driver();
  const auto& facts = library.artifact().facts;
  if (api.cuKernelGetParamInfo_v12040 == nullptr) return {};
  for (std::size_t i = 0; i < facts.parameters.size(); ++i) {
    std::size_t offset = 0, bytes = 0;
    const auto result = api.cuKernelGetParamInfo_v12040(library.kernel(), i, &offset, &bytes);
    const auto& parameter = facts.parameters[i];
    if (result != CUDA_SUCCESS) return library.failed("cuKernelGetParamInfo", result);
    if (offset != parameter.offset || bytes != parameter.bytes)
      return Error(ErrorCode::driver_failed,
                   subject(facts) + ": parameter " + std::to_string(i) + " is at " +
                       std::to_string(parameter.offset) + " with " +
                       std::to_string(parameter.bytes) + " bytes by the cubin, at " +
                       std::to_string(offset) + " with " + std::to_string(bytes) +
                       " by the driver; please report this");
  }
  std::size_t offset = 0, bytes = 0;
  if (api.cuKernelGetParamInfo_v12040(library.kernel(), facts.parameters.size(), &offset, &bytes) ==
      CUDA_SUCCESS)
    return Error(ErrorCode::driver_failed,
                 subject(facts) + ": it has " + std::to_string(facts.parameters.size()) +
                     " parameters by the cubin and more by the driver; please report this");
  return {};
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::load(std::shared_ptr<const DriverApi> driver,
                                                     Artifact artifact,
                                                     std::weak_ptr<const LogSink> log) {
  const std::shared_ptr<Library> library(
      new Library(std::move(driver), std::move(artifact), std::move(log)));
  const auto& api = library->driver();
  const auto& facts = library->artifact_.facts;
  // An entry's payload starts at any address; the driver reads the image's words in place.
  auto& image = library->artifact_;
  if (reinterpret_cast<std::uintptr_t>(image.cubin) % kImageAlignment != 0) {
    const auto copy =
        std::make_shared<std::vector<std::byte>>(image.cubin, image.cubin + image.cubin_bytes);
    image.cubin = copy->data();
    image.owner = copy;
  }
  const auto result = api.cuLibraryLoadData(&library->library_, library->artifact_.cubin, nullptr,
                                            nullptr, 0, nullptr, nullptr, 0);
  if (means_unsupported(result)) {
    const auto* name = api.name_of(result);
    const auto reason = std::string(name != nullptr ? name : "an unknown error") + " (" +
                        std::to_string(static_cast<int>(result)) + ")";
    return Error(
        ErrorCode::unsupported,
        subject(facts) + ": the driver refused the cubin with " + reason + "; it was compiled by " +
            facts.toolchain + " and the driver supports CUDA " + cuda_version_text(api.version()) +
            ". If the driver is the older one, update it or compile with an NVRTC of its version");
  }
  // Of the device and not of the cubin: no memory, or a kernel that failed before.
  if (result != CUDA_SUCCESS) return library->failed("cuLibraryLoadData", result);
  const auto found =
      api.cuLibraryGetKernel(&library->kernel_, library->library_, facts.symbol.c_str());
  if (found == CUDA_ERROR_NOT_FOUND)
    return Error(ErrorCode::driver_failed,
                 subject(facts) + ": the driver finds no kernel " + facts.symbol +
                     " in the cubin: " + api.failed("cuLibraryGetKernel", found).message());
  if (found != CUDA_SUCCESS) return library->failed("cuLibraryGetKernel", found);
  if (auto status = check_parameters(*library); !status) return status.error();
  return std::shared_ptr<const Library>(library);
}

Library::~Library() {
  // In a forked child the driver is not ours any more; it must not be called.
  if (library_ == nullptr || generation_ != fork_generation()) return;
  const OutsideCapture outside(*driver_);
  const auto result = driver_->cuLibraryUnload(library_);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  if (const auto log = log_.lock(); log && *log)
    (*log)(LogLevel::warning,
           subject(artifact_.facts) + ": " + driver_->failed("cuLibraryUnload", result).message());
}

namespace {

Result<LoadedKernel::Limits> limits_of(const Library& library, CUdevice device) {
  const auto& api = library.driver();
  int opt_in = 0, sms = 0, window = 0, clusters = 0, cooperative = 0;
  int block[3] = {}, grid[3] = {};
  const std::pair<CUdevice_attribute, int*> of_device[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &opt_in},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms},
      {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, &window},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, &clusters},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &cooperative},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &block[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &block[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &block[2]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &grid[0]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &grid[1]},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &grid[2]}};
  for (const auto& [attribute, value] : of_device)
    if (const auto result = api.cuDeviceGetAttribute(value, attribute, device);
        result != CUDA_SUCCESS)
      return library.failed("cuDeviceGetAttribute", result);
  int fixed = 0, threads = 0;
  int cluster[3] = {};
  const std::pair<CUfunction_attribute, int*> of_kernel[] = {
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &fixed},
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &cluster[0]},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &cluster[1]},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &cluster[2]}};
  for (const auto& [attribute, value] : of_kernel)
    if (const auto result = api.cuKernelGetAttribute(value, attribute, library.kernel(), device);
        result != CUDA_SUCCESS)
      return library.failed("cuKernelGetAttribute", result);
  const auto extent = [](const int(&size)[3]) {
    return Extent{static_cast<unsigned>(size[0]), static_cast<unsigned>(size[1]),
                  static_cast<unsigned>(size[2])};
  };
  return LoadedKernel::Limits{
      .threads_per_block = static_cast<unsigned>(threads),
      .static_shared_bytes = static_cast<unsigned>(fixed),
      .dynamic_shared_bytes = static_cast<unsigned>(opt_in > fixed ? opt_in - fixed : 0),
      .block_threads = extent(block),
      .grid_blocks = extent(grid),
      .compiled_cluster = cluster[0] > 0 ? std::optional(extent(cluster)) : std::nullopt,
      .access_window_bytes = static_cast<std::size_t>(window),
      .sm_count = static_cast<unsigned>(sms),
      .clusters = clusters != 0,
      .cooperative = cooperative != 0};
}

}  // namespace

Result<std::shared_ptr<const LoadedKernel>> LoadedKernel::prepare(
    std::shared_ptr<const Library> library, int ordinal) {
  const std::shared_ptr<LoadedKernel> loaded(new LoadedKernel(std::move(library), ordinal));
  const auto& api = loaded->library().driver();
  const auto kernel = loaded->library().kernel();

  CUdevice device = 0;
  if (const auto result = api.cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS)
    return loaded->library().failed("cuDeviceGet", result);
  KILN_TRY(loaded->limits_, limits_of(loaded->library(), device));
  // To all that the device has left, once: a limit set per launch could undercut a launch that is
  // being made by another thread.
  const auto most = static_cast<int>(loaded->limits_.dynamic_shared_bytes);
  if (const auto result = api.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                   most, kernel, device);
      result != CUDA_SUCCESS)
    return loaded->library().failed("cuKernelSetAttribute", result);
  // Clusters of more than 8 blocks need this switch.
  if (loaded->limits_.clusters)
    if (const auto result = api.cuKernelSetAttribute(
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, kernel, device);
        result != CUDA_SUCCESS)
      return loaded->library().failed("cuKernelSetAttribute", result);

  // With lazy loading the module reaches a context at its first launch; asking for the function
  // brings that forward to now. Without a current context of this device there is nothing to load.
  if (const auto current = api.current_device(); current && *current == ordinal)
    if (auto status = loaded->bring_into_context(); !status) return status.error();

  return std::shared_ptr<const LoadedKernel>(loaded);
}

Status LoadedKernel::bring_into_context() const noexcept {
  const auto& api = library_->driver();
  const OutsideCapture outside(api);
  CUfunction function = nullptr;
  if (const auto result = api.cuKernelGetFunction(&function, library_->kernel());
      result != CUDA_SUCCESS)
    return library_->failed("cuKernelGetFunction", result);
  CUcontext context = nullptr;
  if (const auto result = api.cuCtxGetCurrent(&context); result != CUDA_SUCCESS)
    return library_->failed("cuCtxGetCurrent", result);
  const auto place = next_context_.fetch_add(1, std::memory_order_relaxed) % contexts_.size();
  contexts_[place].store(context, std::memory_order_relaxed);
  return {};
}

Status LoadedKernel::be_in_context() const {
  const auto& api = library_->driver();
  CUcontext context = nullptr;
  if (const auto result = api.cuCtxGetCurrent(&context); result != CUDA_SUCCESS)
    return library_->failed("cuCtxGetCurrent", result);
  for (const auto& known : contexts_)
    if (known.load(std::memory_order_relaxed) == context) return {};
  if (api.capture_is_visible())
    return Error(ErrorCode::capture_active,
                 subject(library_->artifact().facts) +
                     ": its code is not in this context yet, and a stream of the context is being "
                     "captured: call Runtime::warmup(), or prepare a launch of it, with this "
                     "context current before the capture");
  return bring_into_context();
}

CUkernel Kernel::handle() const noexcept {
  return loaded_->library().kernel();
}
const ArtifactFacts& Kernel::facts() const noexcept {
  return loaded_->library().artifact().facts;
}
int Kernel::device() const noexcept {
  return loaded_->ordinal();
}

}  // namespace kiln
