#include "runtime/loaded_kernel.hpp"

#include <cstdint>
#include <string>
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

}  // namespace

Library::Library(std::shared_ptr<const DriverApi> driver, Artifact artifact, LogSink log)
    : driver_(std::move(driver)),
      artifact_(std::move(artifact)),
      log_(std::move(log)),
      generation_(fork_generation()) {}

Result<std::shared_ptr<const Library>> Library::load(std::shared_ptr<const DriverApi> driver,
                                                     Artifact artifact, LogSink log) {
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
  if (result != CUDA_SUCCESS) {
    const auto* name = api.name_of(result);
    const auto reason = std::string(name != nullptr ? name : "an unknown error") + " (" +
                        std::to_string(static_cast<int>(result)) + ")";
    return Error(
        means_unsupported(result) ? ErrorCode::unsupported : ErrorCode::driver_failed,
        subject(facts) + ": the driver refused the cubin with " + reason + "; it was compiled by " +
            facts.toolchain + " and the driver supports CUDA " + cuda_version_text(api.version()) +
            ". If the driver is the older one, update it or compile with an NVRTC of its version");
  }
  const auto found =
      api.cuLibraryGetKernel(&library->kernel_, library->library_, facts.symbol.c_str());
  if (found != CUDA_SUCCESS)
    return Error(ErrorCode::driver_failed, subject(facts) + ": the cubin holds no kernel " +
                                               facts.symbol + " for the driver");
  return std::shared_ptr<const Library>(library);
}

Library::~Library() {
  // In a forked child the driver is not ours any more; it must not be called.
  if (library_ == nullptr || generation_ != fork_generation()) return;
  const auto result = driver_->cuLibraryUnload(library_);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  if (log_)
    log_(LogLevel::warning,
         subject(artifact_.facts) + ": " + driver_->failed("cuLibraryUnload", result).message());
}

Result<std::shared_ptr<const LoadedKernel>> LoadedKernel::prepare(
    std::shared_ptr<const Library> library, int ordinal) {
  const std::shared_ptr<LoadedKernel> loaded(new LoadedKernel(std::move(library), ordinal));
  const auto& api = loaded->library().driver();
  const auto kernel = loaded->library().kernel();

  CUdevice device = 0;
  if (const auto result = api.cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS)
    return api.failed("cuDeviceGet", result);
  int opt_in = 0;
  if (const auto result = api.cuDeviceGetAttribute(
          &opt_in, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
      result != CUDA_SUCCESS)
    return api.failed("cuDeviceGetAttribute", result);
  int fixed = 0;
  if (const auto result =
          api.cuKernelGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel, device);
      result != CUDA_SUCCESS)
    return api.failed("cuKernelGetAttribute", result);
  int threads = 0;
  if (const auto result = api.cuKernelGetAttribute(
          &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device);
      result != CUDA_SUCCESS)
    return api.failed("cuKernelGetAttribute", result);
  const int dynamic = opt_in > fixed ? opt_in - fixed : 0;
  if (const auto result = api.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                   dynamic, kernel, device);
      result != CUDA_SUCCESS)
    return api.failed("cuKernelSetAttribute", result);
  loaded->limits_ = {static_cast<unsigned>(threads), static_cast<unsigned>(fixed),
                     static_cast<unsigned>(dynamic)};

  // With lazy loading the module reaches a context at its first launch; asking for the function
  // brings that forward to now. Without a current context of this device there is nothing to load.
  if (const auto current = api.current_device(); current && *current == ordinal) {
    CUfunction function = nullptr;
    if (const auto result = api.cuKernelGetFunction(&function, kernel); result != CUDA_SUCCESS)
      return api.failed("cuKernelGetFunction", result);
  }

  return std::shared_ptr<const LoadedKernel>(loaded);
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
