#include "runtime/compile_log.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/architecture.hpp"

namespace kiln {
namespace {

// As the log has it; an empty name when the failure is another.
struct MissingHeader {
  std::string name{};
  std::string reason{};    // of the system, such as "Too many open files"
  std::string_view place;  // "file(line)" of the include
};

MissingHeader missing_header(std::string_view log) {
  constexpr std::string_view kMarks[] = {"could not open source file \"",
                                         "cannot open source file \""};
  for (const auto mark : kMarks) {
    const auto at = log.find(mark);
    if (at == std::string_view::npos) continue;
    const auto begin = log.rfind('\n', at) + 1;  // 0 where there is none
    const auto line = log.substr(begin, log.find('\n', at) - begin);
    const auto name = line.substr(at - begin + mark.size());
    const auto quote = std::min(name.find('"'), name.size());
    const auto after = name.substr(std::min(quote + 1, name.size()));
    return {std::string(name.substr(0, quote)),
            std::string(after.starts_with(": ") ? after.substr(2) : std::string_view()),
            line.substr(0, line.find(": "))};
  }
  return {};
}

bool was_there(const MissingHeader& missing, const IncludeClosure& closure) {
  if (missing.name.empty()) return false;
  // One that the key's scan found nowhere may share its last part with one that is there, as
  // <cstdint> does with <cuda/std/cstdint>.
  const auto& nowhere = closure.unresolved;
  if (missing.reason.empty() &&
      std::find(nowhere.begin(), nowhere.end(), missing.name) != nowhere.end())
    return false;
  return std::any_of(closure.disk.begin(), closure.disk.end(),
                     [&](const auto& file) { return file.label.ends_with("/" + missing.name); });
}

bool is_of_toolkit(std::string_view file, const Program& program) {
  for (const auto& directory : program.searched_directories) {
    const auto prefix = directory.string() + "/";
    if (!file.starts_with(prefix)) continue;
    const auto label_end = "/" + std::string(file.substr(prefix.size()));
    for (const auto& known : program.closure.disk)
      if (known.label.starts_with("toolkit/") && known.label.ends_with(label_end)) return true;
  }
  return false;
}

// What <cuda/std/...> calls a header of the standard libraries, of C++ or of C; empty for others.
std::string name_in_toolkit(const std::string& name) {
  constexpr std::string_view kOfC[] = {"assert.h", "complex.h",  "ctype.h",  "errno.h",  "float.h",
                                       "limits.h", "inttypes.h", "math.h",   "stdarg.h", "stddef.h",
                                       "stdint.h", "stdio.h",    "stdlib.h", "string.h", "time.h"};
  if (name.find('/') != std::string::npos) return {};
  if (name.find('.') == std::string::npos) return name;
  return std::find(std::begin(kOfC), std::end(kOfC), name) != std::end(kOfC)
             ? "c" + name.substr(0, name.size() - 2)
             : std::string();
}

std::string cure_of_missing(const MissingHeader& missing, const Program& program) {
  if (is_of_toolkit(missing.place.substr(0, missing.place.find('(')), program))
    return "; that header is for host code: include the part of it that is for device code, such "
           "as <cub/block/block_reduce.cuh> for <cub/cub.cuh>";
  for (const std::string_view library : {"cuda/", "cub/", "thrust/", "nv/"})
    if (missing.name.starts_with(library))
      return "; it is one of CUDA's C++ libraries: install them beside the toolkit, as by pip "
             "install nvidia-cuda-cccl";
  const auto name = name_in_toolkit(missing.name);
  if (name.empty())
    return "; name the directory that it lies in by RuntimeOptions::include_roots (kiln compile "
           "-I)";
  const auto any_has = [&](const std::string& file) {
    std::error_code ignored;
    return std::any_of(
        program.searched_directories.begin(), program.searched_directories.end(),
        [&](const auto& root) { return std::filesystem::exists(root / file, ignored); });
  };
  if (any_has("cuda/std") && !any_has("cuda/std/" + name))
    return "; NVRTC has no standard library, and <cuda/std/...> no such header: leave it out, as "
           "by #ifndef __CUDACC_RTC__ (printf and assert are there without one)";
  return "; NVRTC has no C++ standard library: include <cuda/std/" + name +
         "> of the CUDA toolkit instead";
}

// The header of a name that nvcc knows unasked, or that everybody expects; empty for others.
std::string_view header_of_undefined(std::string_view error) {
  constexpr std::pair<std::string_view, std::string_view> kHeaders[] = {
      {"half", "<cuda_fp16.h>"},
      {"half2", "<cuda_fp16.h>"},
      {"__half*", "<cuda_fp16.h>"},
      {"__nv_bfloat16*", "<cuda_bf16.h>"},
      {"__nv_fp8*", "<cuda_fp8.h>"},
      {"__nv_fp6*", "<cuda_fp6.h>"},
      {"__nv_fp4*", "<cuda_fp4.h>"},
      {"cudaGridDependencySynchronize", "<cuda_device_runtime_api.h>"},
      {"cudaTriggerProgrammaticLaunchCompletion", "<cuda_device_runtime_api.h>"},
      {"int8_t", "<cuda/std/cstdint>"},
      {"uint8_t", "<cuda/std/cstdint>"},
      {"int16_t", "<cuda/std/cstdint>"},
      {"uint16_t", "<cuda/std/cstdint>"},
      {"int32_t", "<cuda/std/cstdint>"},
      {"uint32_t", "<cuda/std/cstdint>"},
      {"int64_t", "<cuda/std/cstdint>"},
      {"uint64_t", "<cuda/std/cstdint>"},
      {"uintptr_t", "<cuda/std/cstdint>"},
  };
  constexpr std::string_view kMark = "error: identifier \"";
  const auto at = error.find(kMark);
  if (at == std::string_view::npos) return {};
  auto name = error.substr(at + kMark.size());
  const auto end = name.find("\" is undefined");
  if (end == std::string_view::npos) return {};
  name = name.substr(0, end);
  for (const auto& [known, header] : kHeaders)
    if (known.ends_with('*') ? name.starts_with(known.substr(0, known.size() - 1)) : name == known)
      return header;
  return {};
}

}  // namespace

std::string lost_header(std::string_view log, const IncludeClosure& closure) {
  auto missing = missing_header(log);
  return was_there(missing, closure) ? std::move(missing.name) : std::string();
}

std::string missing_header_help(std::string_view log, const Program& program) {
  const auto missing = missing_header(log);
  const auto& name = missing.name;
  if (name.empty()) return {};
  if (was_there(missing, program.closure))
    return "header <" + name +
           "> was there a moment ago and cannot be opened now: it was removed, or no file "
           "descriptor was left (ulimit -n); compile again";
  std::string searched;
  for (const auto& directory : program.searched_directories) {
    std::error_code ignored;
    searched.append(searched.empty() ? "" : ", ").append(directory.string());
    if (!std::filesystem::is_directory(directory, ignored)) searched += " (no such directory)";
  }
  auto help =
      "header <" + name + ">, which " + std::string(missing.place) +
      " includes, was not found among the added sources nor in " +
      (searched.empty() ? std::string("any directory, since no include root is set") : searched);
  for (const auto& skipped : program.skipped_toolkits) help += "; not looked in: " + skipped;
  return help + cure_of_missing(missing, program);
}

std::string cure_of(std::string_view error, std::string_view architecture) {
  constexpr std::string_view kNoConstant = "namespace \"key\" has no member \"";
  if (const auto at = error.find(kNoConstant); at != std::string_view::npos) {
    const auto name = error.substr(at + kNoConstant.size());
    return "; add the constant to KernelSpec::key (kiln compile --key " +
           std::string(name.substr(0, name.find('"'))) + "=VALUE)";
  }
  constexpr std::pair<std::string_view, std::string_view> kCures[] = {
      {"device-side kernel launch",
       "; Kiln makes whole cubins, in which no kernel launches another: launch it from the host"},
      {"namespace \"std\" has no member",
       "; NVRTC has no C++ standard library: write cuda::std:: and include <cuda/std/...>"},
      {"ptxas fatal   : Unknown option '",
       "; each option of the assembler takes a --ptxas-options= of its own"},
      {"': expected a number",
       "; each option of the assembler takes a --ptxas-options= of its own"},
      {"Unresolved extern function",
       "; a program is compiled by itself and linked with nothing: include what defines the "
       "function"},
  };
  if (auto header = header_of_undefined(error); !header.empty())
    return "; include " + std::string(header) + ", which NVRTC does not by itself";
  for (const auto& [mark, cure] : kCures)
    if (error.find(mark) != std::string_view::npos) return std::string(cure);
  if (error.starts_with("jit/key.cuh("))
    return "; a macro has the name of a constant of the key: rename one of them";
  const auto parsed = parse_architecture(architecture);
  if (error.find(" not supported on .target") == std::string_view::npos || !parsed) return {};
  const auto asked = architecture_of(parsed->sm / 10, parsed->sm % 10);
  return asked == architecture ? std::string()
                               : "; compile for " + asked + ", which Kiln asks for on such a GPU " +
                                     "and which has more instructions";
}

bool ran_out_of_memory(std::string_view log) {
  return log.find("catastrophic error: out of memory") != std::string_view::npos ||
         log.find("Memory allocation failure") != std::string_view::npos;
}

}  // namespace kiln
