#include "runtime/compile_log.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "runtime/architecture.hpp"

namespace kiln {
namespace {

// As the log has it; empty when the failure is another.
std::string name_of_missing_header(std::string_view log) {
  constexpr std::string_view kMarks[] = {"could not open source file \"",
                                         "cannot open source file \""};
  for (const auto mark : kMarks) {
    const auto at = log.find(mark);
    if (at == std::string_view::npos) continue;
    const auto begin = at + mark.size();
    return std::string(log.substr(begin, log.find('"', begin) - begin));
  }
  return {};
}

}  // namespace

std::string lost_header(std::string_view log, const IncludeClosure& closure) {
  const auto name = name_of_missing_header(log);
  const bool was_there =
      !name.empty() && std::any_of(closure.disk.begin(), closure.disk.end(), [&](const auto& file) {
        return file.label.ends_with("/" + name);
      });
  return was_there ? name : std::string();
}

std::string missing_header_help(std::string_view log, const Program& program) {
  if (const auto lost = lost_header(log, program.closure); !lost.empty())
    return "header <" + lost +
           "> was there a moment ago and cannot be opened now: it was removed, or no file "
           "descriptor was left (ulimit -n); compile again";
  const auto name = name_of_missing_header(log);
  if (name.empty()) return {};
  std::string searched;
  for (const auto& directory : program.searched_directories) {
    std::error_code ignored;
    searched.append(searched.empty() ? "" : ", ").append(directory.string());
    if (!std::filesystem::is_directory(directory, ignored)) searched += " (no such directory)";
  }
  auto help =
      "header <" + name + "> was not found among the added sources nor in " +
      (searched.empty() ? std::string("any directory, since no include root is set") : searched);
  for (const auto& skipped : program.skipped_toolkits) help += "; not looked in: " + skipped;
  if (name.find('.') == std::string::npos && name.find('/') == std::string::npos)
    help += "; NVRTC has no C++ standard library: include <cuda/std/" + name +
            "> of the CUDA toolkit instead";
  return help;
}

std::string cure_of(std::string_view error, std::string_view architecture) {
  constexpr std::string_view kNoConstant = "namespace \"key\" has no member \"";
  if (const auto at = error.find(kNoConstant); at != std::string_view::npos) {
    const auto name = error.substr(at + kNoConstant.size());
    return "; add the constant to KernelSpec::key (kiln compile --key " +
           std::string(name.substr(0, name.find('"'))) + "=VALUE)";
  }
  const auto target = parse_architecture(architecture);
  if (error.find(" not supported on .target") == std::string_view::npos || !target) return {};
  const auto asked = architecture_of(target->sm / 10, target->sm % 10);
  return asked == architecture ? std::string()
                               : "; compile for " + asked + ", which Kiln asks for on such a GPU " +
                                     "and which has more instructions";
}

bool ran_out_of_memory(std::string_view log) {
  return log.find("catastrophic error: out of memory") != std::string_view::npos ||
         log.find("Memory allocation failure") != std::string_view::npos;
}

}  // namespace kiln
