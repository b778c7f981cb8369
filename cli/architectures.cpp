#include "cli/architectures.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

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

std::string asked_instead_of(const std::string& architecture) {
  constexpr std::string_view kPrefix = "sm_";
  if (!architecture.starts_with(kPrefix)) return {};
  int sm = 0;
  const auto* const digits = architecture.data() + kPrefix.size();
  if (std::from_chars(digits, architecture.data() + architecture.size(), sm).ec != std::errc())
    return {};
  auto asked = architecture_of(sm / 10, sm % 10);
  return asked == architecture ? std::string() : asked;
}

void warn_of_unasked(const Settings& settings, Output& output) {
  if (settings.architectures_origin.empty()) return;  // a recording names what a run asked for
  const auto& names = settings.architectures;
  for (const auto& name : names) {
    const auto asked = asked_instead_of(name);
    if (asked.empty() || std::find(names.begin(), names.end(), asked) != names.end()) continue;
    output.message("warning: no run finds what is compiled for " + name + ": on such a GPU Kiln " +
                   "asks for " + asked + "; name " + asked + " in " +
                   settings.architectures_origin);
  }
}

}  // namespace kiln::cli
