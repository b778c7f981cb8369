#include "cli/architectures.hpp"

#include <algorithm>

namespace kiln::cli {

std::variant<std::vector<std::string>, Failure> architectures_of(const Settings& settings,
                                                                 Runtime& runtime) {
  auto names = settings.architectures;
  if (!names.empty()) return names;
  for (const auto& device : runtime.devices())
    if (std::find(names.begin(), names.end(), device.architecture) == names.end())
      names.push_back(device.architecture);
  if (!names.empty()) return names;
  const auto device = runtime.device(0);
  return usage_failure(
      "no architecture is named, and there is no device here to ask for one; name what to compile "
      "for with --arch sm_90a,sm_100a or KILN_ARCH" +
      (device ? std::string() : " (" + device.error().message() + ")"));
}

}  // namespace kiln::cli
