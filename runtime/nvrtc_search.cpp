#include "runtime/nvrtc_search.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/loader_cache.hpp"
#include "runtime/read_file.hpp"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestLoaderCache = 64U << 20;

#if defined(__x86_64__)
constexpr std::string_view kTargets[] = {"x86_64-linux"};
constexpr std::string_view kMultiarch = "x86_64-linux-gnu";
#else
constexpr std::string_view kTargets[] = {"sbsa-linux", "aarch64-linux"};
constexpr std::string_view kMultiarch = "aarch64-linux-gnu";
#endif

// The subdirectories of `parent` called "<prefix><version>", newest version first.
std::vector<fs::path> versioned_directories(const fs::path& parent, std::string_view prefix) {
  std::vector<std::pair<std::vector<int>, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    auto version = version_after(entry->path().filename().native(), prefix);
    if (!version.empty()) found.emplace_back(std::move(version), entry->path());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (auto& [version, path] : found) paths.push_back(std::move(path));
  return paths;
}

class Search {
 public:
  Search(const EnvironmentReader& environment, const SearchRoots& roots)
      : environment_(environment), roots_(roots) {}

  NvrtcSearch in_explicit(const fs::path& given) {
    how_ = "the path that was given";
    std::error_code error;
    const auto path = fs::absolute(given, error);
    const auto type = fs::status(path, error).type();
    if (type == fs::file_type::not_found || type == fs::file_type::none) {
      add_tried(path, error ? error.message() : "no such file or directory");
    } else if (type != fs::file_type::directory) {
      library(path);
    } else if (!directory(path) && !toolkit(path)) {
      environment_root(path);
    }
    return std::move(result_);
  }

  NvrtcSearch everywhere() {
    toolkits() || loader() || wheels();
    return std::move(result_);
  }

 private:
  bool toolkits() {
    for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
      how_ = name;
      if (const auto root = variable(name); !root.empty() && toolkit(root)) return true;
    }
    how_ = "the usual prefix";
    if (toolkit(roots_.prefix / "cuda")) return true;
    const auto others = versioned_directories(roots_.prefix, "cuda-");
    return std::any_of(others.begin(), others.end(),
                       [&](const fs::path& root) { return toolkit(root); });
  }

  bool loader() {
    how_ = "LD_LIBRARY_PATH";
    const auto text = variable("LD_LIBRARY_PATH").native();
    for (std::size_t at = 0; at < text.size();) {
      const auto end = std::min(text.find_first_of(":;", at), text.size());
      // An empty part means the working directory, which must not decide what is compiled.
      if (end > at && directory(text.substr(at, end - at))) return true;
      at = end + 1;
    }
    how_ = "the loader's cache";
    if (loader_cache()) return true;
    how_ = "the loader's directories";
    return std::any_of(roots_.loader_directories.begin(), roots_.loader_directories.end(),
                       [&](const fs::path& path) { return directory(path); });
  }

  bool loader_cache() {
    const auto cache = read_head(roots_.loader_cache, kLargestLoaderCache);
    if (!cache) {
      add_tried(roots_.loader_cache, cache.error().message());
      return false;
    }
    std::vector<std::pair<std::vector<int>, fs::path>> known;
    constexpr std::string_view kPrefix = "libnvrtc.so.";
    for (auto& path : loader_cache_paths(*cache, kPrefix)) {
      auto version = version_after(fs::path(path).filename().native(), kPrefix);
      if (!version.empty()) known.emplace_back(std::move(version), std::move(path));
    }
    if (known.empty()) add_tried(roots_.loader_cache, "it lists no libnvrtc.so.<version>");
    std::stable_sort(known.begin(), known.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    return std::any_of(known.begin(), known.end(),
                       [&](const auto& entry) { return library(entry.second); });
  }

  bool wheels() {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
      how_ = name;
      if (const auto root = variable(name); !root.empty() && environment_root(root)) return true;
    }
    how_ = "the user's Python packages";
    if (const auto home = variable("HOME"); !home.empty() && python_root(home / ".local" / "lib"))
      return true;
    how_ = "the system's Python packages";
    return std::any_of(roots_.python_roots.begin(), roots_.python_roots.end(),
                       [&](const fs::path& root) { return python_root(root); });
  }

  // A virtual or conda environment; the latter also holds libraries itself.
  bool environment_root(const fs::path& root) {
    return packages(root) || toolkit(root) || python_root(root / "lib");
  }

  bool python_root(const fs::path& lib) {
    for (const auto& python : versioned_directories(lib, "python"))
      for (const char* name : {"site-packages", "dist-packages"})
        if (packages(python / name)) return true;
    return false;
  }

  // A directory that Python packages were unpacked into.
  bool packages(const fs::path& root) {
    std::error_code error;
    const auto nvidia = root / "nvidia";
    if (!fs::is_directory(nvidia, error)) {
      if (fs::is_directory(root, error)) add_tried(nvidia, "no such directory");
      return false;
    }
    for (const auto& toolkit_wheel : versioned_directories(nvidia, "cu"))
      if (directory(toolkit_wheel / "lib")) return true;
    return directory(nvidia / "cuda_nvrtc" / "lib");
  }

  bool toolkit(const fs::path& root) {
    if (directory(root / "lib64") || directory(root / "lib")) return true;
    return std::any_of(std::begin(kTargets), std::end(kTargets), [&](std::string_view target) {
      return directory(root / "targets" / target / "lib");
    });
  }

  bool directory(const fs::path& path) {
    std::error_code error;
    const auto absolute = fs::absolute(path, error).lexically_normal();
    if (!seen_.insert(absolute.native()).second) return false;
    const auto candidates = nvrtc_candidates(absolute);
    if (candidates.empty())
      add_tried(absolute, fs::is_directory(absolute, error) ? "no libnvrtc.so.<version> in it"
                                                            : "no such directory");
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](const fs::path& candidate) { return library(candidate); });
  }

  bool library(const fs::path& path) {
    if (!seen_.insert(path.native()).second) return false;
    auto files = examine_nvrtc(path);
    if (!files) {
      add_tried(path, files.error().message());
      return false;
    }
    files->how_found = how_;
    result_.found = *std::move(files);
    return true;
  }

  void add_tried(const fs::path& path, std::string_view why) {
    result_.tried.push_back(path.string() + ": " + std::string(why));
  }

  fs::path variable(const char* name) const { return environment_(name).value_or(std::string()); }

  const EnvironmentReader& environment_;
  const SearchRoots& roots_;
  std::string how_;
  std::set<std::string> seen_;
  NvrtcSearch result_;
};

}  // namespace

std::vector<fs::path> SearchRoots::default_loader_directories() {
  std::vector<fs::path> directories;
  for (const char* parent : {"/usr/local/lib", "/lib", "/usr/lib"})
    directories.push_back(fs::path(parent) / kMultiarch);
  for (const char* path :
       {"/usr/local/lib64", "/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib"})
    directories.emplace_back(path);
  return directories;
}

NvrtcSearch find_nvrtc(const fs::path& explicit_path, const EnvironmentReader& environment,
                       const SearchRoots& roots) {
  Search search(environment, roots);
  auto result = explicit_path.empty() ? search.everywhere() : search.in_explicit(explicit_path);
  result.asked_for = explicit_path;
  return result;
}

Error no_nvrtc_error(const NvrtcSearch& search) {
  std::string message = "NVRTC 12.8 or newer is needed to compile and was not found";
  if (search.asked_for.empty())
    message +=
        ". Install the CUDA toolkit, or run `pip install nvidia-cuda-nvrtc`, or name the library "
        "by the option nvrtc or in KILN_NVRTC. Tried:";
  else
    message += " in " + search.asked_for.string() +
               ", which the option nvrtc or KILN_NVRTC names, so that nothing else is looked at: "
               "correct it or take it away. Tried:";
  for (const auto& tried : search.tried) message += "\n  " + tried;
  if (search.tried.empty()) message += " nothing";
  return Error(ErrorCode::no_toolchain, std::move(message));
}

}  // namespace kiln
