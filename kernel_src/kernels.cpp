#include "kernel_src/kernels.hpp"

#include "device_sources.hpp"
#include "model_manifests.hpp"

namespace kiln::kernels {

std::span<const SourceText> embedded_sources() noexcept {
  return device_sources();
}

std::span<const SourceText> embedded_manifests() noexcept {
  return model_manifests();
}

Status add_sources(Runtime& runtime) {
  return runtime.add_sources(embedded_sources());
}

}  // namespace kiln::kernels
