#include "runtime/include_roots.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace kiln {
namespace {

bool has_dot_parts(std::string_view path) {
  return path.starts_with("./") || path.starts_with("../") || path.starts_with('/') ||
         path.find("/./") != std::string_view::npos ||
         path.find("/../") != std::string_view::npos || path.find("//") != std::string_view::npos ||
         path.ends_with("/.") || path.ends_with("/..");
}

std::string without_last_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

std::optional<std::string> normal_path(std::string_view path) {
  std::string normal;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find('/', begin), path.size());
    const auto part = path.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      if (!normal.empty()) normal += '/';
      normal += part;
    } else if (normal.empty()) {
      return std::nullopt;
    } else {
      const auto slash = normal.rfind('/');
      normal.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  if (normal.empty()) return std::nullopt;
  return normal;
}

std::string_view directory_part(std::string_view path) noexcept {
  return path.substr(0, path.rfind('/') + 1);
}

IncludeRoots::IncludeRoots(std::span<const IncludeRoot> roots) : placed_(roots.size()) {
  std::size_t toolkits = 0;
  std::size_t others = 0;
  for (const auto& root : roots) {
    std::error_code failure;
    auto path = std::filesystem::absolute(root.path, failure);
    const auto number = root.toolkit ? toolkits++ : others++;
    roots_.push_back({without_last_slash((failure ? root.path : path).string()),
                      (root.toolkit ? "toolkit/" : "include/") + std::to_string(number) + '/',
                      root.toolkit});
  }
}

const RootFile* IncludeRoots::place(std::size_t root, const std::string& relative) {
  const auto [at, is_new] = placed_[root].try_emplace(relative);
  auto& result = at->second;
  if (!is_new) return result ? &*result : nullptr;
  auto path = roots_[root].path + '/' + relative;
  const auto probe = probe_file(path);
  if (probe.kind == FileKind::unknown && trouble_)
    trouble_ =
        Error(ErrorCode::io_failed,
              "cannot look for \"" + path + "\": " + std::generic_category().message(probe.error) +
                  "; mend that, or take its directory out of those for includes");
  if (probe.kind != FileKind::file) return nullptr;
  RootFile file{.root = root, .relative = relative, .path = std::move(path), .stamp = probe.stamp};
  if (has_dot_parts(relative)) {
    // The kernel follows ".." through links, text does not: they must agree.
    const auto normal = normal_path(relative);
    auto normal_place = normal ? roots_[root].path + '/' + *normal : std::string();
    file.outside = !normal || !(probe_file(normal_place).stamp == probe.stamp);
    if (!file.outside) {
      file.relative = *normal;
      file.path = std::move(normal_place);
    }
  }
  file.label = roots_[root].label + file.relative;
  result = std::move(file);
  return &*result;
}

const RootFile* IncludeRoots::locate(const std::string& spelling) {
  const auto [at, is_new] = located_.try_emplace(spelling, nullptr);
  for (std::size_t root = 0; is_new && root < roots_.size() && at->second == nullptr; ++root)
    at->second = place(root, spelling);
  return at->second;
}

Result<std::vector<const RootFile*>> IncludeRoots::all_files(std::size_t root) {
  namespace fs = std::filesystem;
  const auto& top = roots_[root].path;
  std::vector<std::string> names;
  std::error_code failure;
  fs::recursive_directory_iterator at(top, failure);
  for (; !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    const auto path = at->path().string();
    const auto is_this = [&](const Root& other) { return other.path == path; };
    std::error_code ignored;
    if (std::any_of(roots_.begin(), roots_.end(), is_this))
      at.disable_recursion_pending();
    else if (at->is_regular_file(ignored))
      names.push_back(path.substr(top.size() + 1));
  }
  if (failure)
    return Error{ErrorCode::io_failed, "cannot list \"" + top + "\": " + failure.message()};
  std::sort(names.begin(), names.end());
  std::vector<const RootFile*> files;
  for (const auto& name : names)
    if (const auto* file = place(root, name)) files.push_back(file);
  return files;
}

}  // namespace kiln
