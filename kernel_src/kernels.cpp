#include "kernel_src/kernels.hpp"

namespace kiln::kernels {

Status add_sources(Runtime& runtime) {
  return runtime.add_sources(embedded_sources());
}

}  // namespace kiln::kernels
