#include "kiln/version.hpp"

#include "runtime/driver_api.hpp"
#include "runtime/nvrtc_search.hpp"
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
                       .how_found = files.how_found};
}

std::string driver_version() {
  const int number = installed_driver_version();
  if (number == 0) return {};
  return cuda_version_text(number);
}

}  // namespace kiln
