#include "kiln/version.hpp"

#include <utility>

#include "runtime/driver_api.hpp"
#include "runtime/nvrtc_search.hpp"
#include "runtime/toolkit_headers.hpp"
#include "runtime/version_text.hpp"

namespace kiln {

std::string_view version() noexcept {
  return KILN_VERSION;
}

Result<ToolchainInfo> find_toolchain(const RuntimeOptions& options,
                                     const EnvironmentReader& environment) {
  const auto search = find_nvrtc(options.nvrtc, environment);
  if (!search.found) return no_nvrtc_error(search);
  const auto& files = *search.found;
  return ToolchainInfo{.version = version_text(files.major, files.minor),
                       .identity = files.toolchain().to_text(),
                       .library = files.library,
                       .builtins = files.builtins,
                       .how_found = files.how_found,
                       .ambiguity = files.ambiguity};
}

Result<ToolkitInfo> find_toolkit(const RuntimeOptions& options,
                                 const EnvironmentReader& environment) {
  const auto search = find_nvrtc(options.nvrtc, environment);
  if (!search.found) return no_nvrtc_error(search);
  auto headers = find_toolkit_headers(*search.found, environment);
  return ToolkitInfo{.directories = std::move(headers.roots),
                     .how_found = std::move(headers.how_found),
                     .skipped = std::move(headers.skipped)};
}

std::string driver_version() {
  const int number = installed_driver_version();
  if (number == 0) return {};
  return cuda_version_text(number);
}

}  // namespace kiln
