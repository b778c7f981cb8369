#include "runtime/toolkit_headers.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/read_file.hpp"
#include "runtime/version_text.hpp"

namespace kiln {
namespace {

namespace fs = std::filesystem;

// The macros stand in the first few hundred lines.
constexpr std::uint64_t kHeadBytes = 128U << 10;

#if defined(__x86_64__)
constexpr std::string_view kTargets[] = {"x86_64-linux"};
#else
constexpr std::string_view kTargets[] = {"sbsa-linux", "aarch64-linux"};
#endif

struct Version {
  int major = 0;
  int minor = 0;
  bool operator==(const Version&) const = default;
  std::string to_text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

std::optional<int> number_at(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

// "#define CUDA_VERSION 13000"
std::optional<Version> version_in_header(const fs::path& header, std::string_view macro) {
  const auto text = read_head(header, kHeadBytes);
  if (!text) return std::nullopt;
  const auto line = "#define " + std::string(macro) + " ";
  const auto at = text->find(line);
  if (at == std::string::npos) return std::nullopt;
  const auto value = number_at(std::string_view(*text).substr(at + line.size()));
  if (!value) return std::nullopt;
  return Version{*value / 1000, *value % 1000 / 10};
}

// {"cuda": {"name": "CUDA SDK", "version": "12.8.1"}, ...}
std::optional<Version> version_in_json(const fs::path& file) {
  const auto text = read_head(file, kHeadBytes);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  for (const std::string_view part : {"\"cuda\"", "\"version\"", "\""}) {
    const auto at = rest.find(part);
    if (at == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(at + part.size());
  }
  const auto dot = rest.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto major = number_at(rest);
  const auto minor = number_at(rest.substr(dot + 1));
  if (!major || !minor) return std::nullopt;
  return Version{*major, *minor};
}

std::optional<Version> version_of(const fs::path& include) {
  if (const auto version = version_in_header(include / "cuda.h", "CUDA_VERSION")) return version;
  if (const auto version = version_in_header(include / "cuda_runtime_api.h", "CUDART_VERSION"))
    return version;
  return version_in_json(include.parent_path() / "version.json");
}

bool directory_at(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool file_at(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

class HeaderSearch {
 public:
  HeaderSearch(int major, int minor) : wanted_{major, minor} {}

  // What lies around a directory of libraries: <prefix>/lib64, <prefix>/targets/<target>/lib, or
  // the lib directory of a wheel.
  bool around(const fs::path& libraries) {
    const auto prefix = libraries.parent_path();
    if (toolkit(prefix)) return true;
    if (prefix.parent_path().filename() == "targets" && toolkit(prefix.parent_path().parent_path()))
      return true;
    // The wheels of CUDA 12 have a directory for each component.
    const auto wheels = prefix.parent_path();
    return wheels.filename() == "nvidia" && include(wheels / "cuda_runtime" / "include");
  }

  // Where the environment and the usual places have a toolkit.
  void anywhere(const EnvironmentReader& environment) {
    std::error_code error;
    for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
      const auto root = environment(name).value_or(std::string());
      const auto absolute = fs::absolute(root, error);
      headers_.how_found = name;
      if (!root.empty() && !error && toolkit(absolute.lexically_normal())) return;
    }
  }

  bool toolkit(const fs::path& root) {
    if (include(root / "include")) return true;
    return std::any_of(std::begin(kTargets), std::end(kTargets), [&](std::string_view target) {
      return include(root / "targets" / target / "include");
    });
  }

  bool has_found() const noexcept { return !headers_.roots.empty(); }

  /// The last thing to ask of it.
  ToolkitHeaders take(std::string_view how_found = {}) {
    if (!how_found.empty()) headers_.how_found = how_found;
    if (headers_.roots.empty()) headers_.how_found.clear();
    return std::move(headers_);
  }

 private:
  bool include(const fs::path& directory) {
    if (std::find(seen_.begin(), seen_.end(), directory) != seen_.end()) return false;
    seen_.push_back(directory);
    if (!directory_at(directory)) return skip(directory, "no such directory");
    // NVRTC cannot read the host's C library, and files that anybody may drop there would win.
    if (file_at(directory / "stdio.h")) return skip(directory, "it holds the C library as well");
    const auto version = version_of(directory);
    if (!version) return skip(directory, "no CUDA version in cuda.h or cuda_runtime_api.h");
    if (*version != wanted_)
      return skip(directory,
                  "headers of CUDA " + version->to_text() + ", not " + wanted_.to_text());
    headers_.roots.push_back(directory);
    // CUDA 13 keeps <cuda/std/...> apart, and so do the wheels of CUDA 12.
    std::vector<fs::path> libraries = {directory / "cccl"};
    if (const auto wheels = directory.parent_path().parent_path(); wheels.filename() == "nvidia")
      libraries.push_back(wheels / "cuda_cccl" / "include");
    for (const auto& library : libraries)
      if (directory_at(library)) headers_.roots.push_back(library);
    return true;
  }

  bool skip(const fs::path& directory, std::string_view why) {
    headers_.skipped.push_back(directory.string() + ": " + std::string(why));
    return false;
  }

  Version wanted_;
  std::vector<fs::path> seen_;
  ToolkitHeaders headers_;
};

}  // namespace

ToolkitHeaders find_toolkit_headers(const NvrtcFiles& nvrtc, const EnvironmentReader& environment) {
  HeaderSearch search(nvrtc.major, nvrtc.minor);
  const auto libraries = nvrtc.library.parent_path();
  std::error_code error;
  const auto real = fs::canonical(nvrtc.library, error);
  if (search.around(libraries) || (!error && search.around(real.parent_path())))
    return search.take("beside NVRTC");
  search.anywhere(environment);
  return search.take();
}

ToolkitHeaders find_toolkit_headers(int major, int minor, const EnvironmentReader& environment) {
  HeaderSearch search(major, minor);
  search.anywhere(environment);
  if (search.has_found()) return search.take();
  const auto version = version_text(major, minor);
  for (const auto& root : {"/usr/local/cuda-" + version, std::string("/usr/local/cuda")})
    if (search.toolkit(root)) break;
  return search.take("the usual prefix");
}

}  // namespace kiln
