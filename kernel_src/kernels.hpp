// The embedded texts of this folder: device code and model manifests.
//
// Threads: constant data; add_sources as Runtime says.
#pragma once

#include <span>

#include "kiln/cache/api.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels {

/// Every device source under its include name, such as "kernel_src/shared/bits.hpp".
KILN_API std::span<const SourceText> embedded_sources() noexcept;

/// Every file in manifests/, under its name.
KILN_API std::span<const SourceText> embedded_manifests() noexcept;

/// Gives `runtime` the sources of all kernels, which must happen before any is created.
/// Errors  invalid_argument when the runtime knows other text under one of the names.
KILN_API Status add_sources(Runtime& runtime);

}  // namespace kiln::kernels
