#include "runtime/nvrtc_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "kiln/cache/digest.hpp"
#include "runtime/elf.hpp"
#include "runtime/read_file.hpp"
#include "runtime/version_text.hpp"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLibrary = "libnvrtc.so.";
constexpr std::string_view kBuiltins = "libnvrtc-builtins.so.";
// Probed by name, because listing a system's library directory costs more than all the rest.
constexpr int kNewestMajor = 24;
constexpr int kOldestMajor = 9;

Error unusable(std::string why) {
  return Error(ErrorCode::no_toolchain, std::move(why));
}

Result<SharedObject> shared_object_of_this_machine(const fs::path& path) {
  auto object = read_shared_object(path);
  if (!object) return unusable(object.error().message());
  if (object->machine != kElfMachineHere)
    return unusable("a library for another machine (ELF machine " +
                    std::to_string(object->machine) + ")");
  return object;
}

Result<std::string> build_id_of(const fs::path& path, const SharedObject& object) {
  if (!object.build_id.empty()) return object.build_id;
  auto content = read_head(path, UINT64_MAX);
  if (!content) return unusable(path.string() + ": " + content.error().message());
  return "xxh3-" + cache::digest_of(*content).hex();
}

struct BuiltinsFile {
  fs::path path{};
  int minor = 0;
};

// One file for each minor version of `major` in `directory`, newest first.
std::vector<BuiltinsFile> builtins_in(const fs::path& directory, int major) {
  std::vector<BuiltinsFile> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto version = version_after(entry->path().filename().native(), kBuiltins);
    if (version.size() >= 2 && version[0] == major) found.push_back({entry->path(), version[1]});
  }
  // The shortest name is the one that NVRTC itself asks the loader for.
  std::sort(found.begin(), found.end(), [](const BuiltinsFile& a, const BuiltinsFile& b) {
    if (a.minor != b.minor) return a.minor > b.minor;
    return std::pair(a.path.native().size(), a.path) < std::pair(b.path.native().size(), b.path);
  });
  const auto same = [](const BuiltinsFile& a, const BuiltinsFile& b) { return a.minor == b.minor; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

// The minor version in the name of the file that `library` stands for, where it has one.
std::optional<int> minor_in_name(const fs::path& real, int major) {
  const auto version = version_after(real.filename().native(), kLibrary);
  if (version.size() < 2 || version[0] != major) return std::nullopt;
  return version[1];
}

Result<BuiltinsFile> choose_builtins(const fs::path& library, int major, std::string& ambiguity) {
  std::error_code error;
  const auto canonical = fs::canonical(library, error);
  const auto real = error ? library : canonical;
  auto found = builtins_in(library.parent_path(), major);
  if (found.empty() && real.parent_path() != library.parent_path())
    found = builtins_in(real.parent_path(), major);
  const auto wanted = minor_in_name(real, major);
  const auto name = std::string(kBuiltins) + std::to_string(major) + "." +
                    (wanted ? std::to_string(*wanted) : std::string("<minor>"));
  if (found.empty()) return unusable("no " + name + " beside it");
  if (wanted) {
    const auto own = std::find_if(found.begin(), found.end(),
                                  [&](const BuiltinsFile& b) { return b.minor == *wanted; });
    if (own == found.end())
      return unusable("no " + name + " beside it, but " + found[0].path.filename().string());
    return *own;
  }
  if (found.size() > 1) {
    ambiguity = "beside " + library.string() + " lie the builtins of";
    for (const auto& builtins : found) ambiguity += " " + version_text(major, builtins.minor);
    ambiguity += "; took " + version_text(major, found[0].minor);
  }
  return found[0];
}

}  // namespace

std::vector<int> version_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  std::vector<int> numbers;
  const char* const end = name.data() + name.size();
  for (const char* at = name.data();; ++at) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || number < 0) return {};
    numbers.push_back(number);
    if (next == end) return numbers;
    if (*next != '.') return {};
    at = next;
  }
}

std::vector<fs::path> nvrtc_candidates(const fs::path& directory) {
  std::vector<fs::path> candidates;
  const auto add_if_there = [&](const std::string& name) {
    auto path = directory / name;
    // A dangling link counts as there, so that the search can say so.
    std::error_code error;
    if (fs::symlink_status(path, error).type() != fs::file_type::not_found && !error)
      candidates.push_back(std::move(path));
  };
  for (int major = kNewestMajor; major >= kOldestMajor; --major)
    add_if_there(std::string(kLibrary) + std::to_string(major));
  if (candidates.empty()) add_if_there("libnvrtc.so");
  return candidates;
}

Result<NvrtcFiles> examine_nvrtc(const fs::path& library) {
  KILN_TRY(const SharedObject object, shared_object_of_this_machine(library));
  // Some releases have the minor version in the name as well: libnvrtc.so.11.2.
  const auto version = version_after(object.soname, kLibrary);
  if (version.empty()) return unusable("not NVRTC: it calls itself \"" + object.soname + "\"");
  const auto floor = version_text(kOldestNvrtcMajor, kOldestNvrtcMinor);
  if (version[0] < kOldestNvrtcMajor)
    return unusable("NVRTC " + std::to_string(version[0]) + " is older than " + floor);

  NvrtcFiles files{.library = library, .major = version[0]};
  KILN_TRY(const BuiltinsFile builtins, choose_builtins(library, files.major, files.ambiguity));
  files.builtins = builtins.path;
  files.minor = builtins.minor;
  if (files.major == kOldestNvrtcMajor && files.minor < kOldestNvrtcMinor)
    return unusable("NVRTC " + version_text(files.major, files.minor) + " is older than " + floor);

  const auto builtins_object = shared_object_of_this_machine(files.builtins);
  if (!builtins_object)
    return unusable("its " + files.builtins.filename().string() + " is " +
                    builtins_object.error().message());
  if (const auto own = std::string(kBuiltins) + version_text(files.major, files.minor);
      builtins_object->soname != own)
    return unusable("its " + files.builtins.filename().string() + " calls itself \"" +
                    builtins_object->soname + "\"");
  KILN_TRY(files.library_build_id, build_id_of(files.library, object));
  KILN_TRY(files.builtins_build_id, build_id_of(files.builtins, *builtins_object));
  return files;
}

}  // namespace kiln
