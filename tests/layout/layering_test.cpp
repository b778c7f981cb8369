// The layers that README.md draws: who may include whom, and what a kernel's folder must hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = KILN_SOURCE_TREE;

struct Include {
  fs::path file;  // relative to the root
  std::string name;
  bool quoted = false;
};

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> endings = {".hpp", ".cpp", ".cu", ".cuh", ".h"};
  return endings.count(path.extension().string()) > 0;
}

std::vector<fs::path> sources_below(const std::string& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(kRoot / folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
    if (entry.is_regular_file() && is_source(entry.path())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Include> includes_below(const std::string& folder) {
  std::vector<Include> includes;
  for (const auto& file : sources_below(folder)) {
    std::istringstream lines(text_of(file));
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kStart = "#include ";
      if (line.rfind(kStart, 0) != 0 || line.size() < kStart.size() + 2) continue;
      const bool quoted = line[kStart.size()] == '"';
      const auto name = line.substr(kStart.size() + 1);
      includes.push_back(
          {file.lexically_relative(kRoot), name.substr(0, name.find(quoted ? '"' : '>')), quoted});
    }
  }
  return includes;
}

bool starts_with_any(const std::string& name, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const auto& prefix) { return name.rfind(prefix, 0) == 0; });
}

// The folder of one kernel, or "device", "shared", "layers"; empty for files beside them.
std::string kernel_folder(const fs::path& relative) {
  auto part = relative.begin();
  return std::distance(relative.begin(), relative.end()) > 2 ? (++part)->string() : std::string();
}

std::vector<std::string> kernel_folders() {
  static const std::set<std::string> others = {"device", "shared", "layers", "manifests"};
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(kRoot / "kernel_src"))
    if (entry.is_directory() && others.count(entry.path().filename().string()) == 0)
      folders.push_back(entry.path().filename().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

// What kiln_embed_sources writes for kernel_src/.
bool is_embedded_table(const std::string& name) {
  return name == "device_sources.hpp" || name == "model_manifests.hpp";
}

// The headers that are installed.
bool is_public(const fs::path& relative) {
  return relative.string().rfind("cache/include/", 0) == 0 ||
         relative.string().rfind("runtime/include/", 0) == 0 ||
         relative.string().rfind("runtime/bench/include/", 0) == 0;
}

}  // namespace

TEST(Layering, TheTreeIsWhereTheTestLooks) {
  for (const auto* folder : {"cache", "runtime", "kernel_src", "cli", "tests", "examples"})
    EXPECT_FALSE(sources_below(folder).empty()) << folder;
}

TEST(Layering, CacheIncludesOnlyItself) {
  for (const auto& include : includes_below("cache")) {
    if (!include.quoted) {
      EXPECT_NE(include.name, "cuda.h") << include.file;
      EXPECT_NE(include.name, "nvrtc.h") << include.file;
      continue;
    }
    EXPECT_TRUE(starts_with_any(include.name, {"cache/", "kiln/cache/"}))
        << include.file << " includes " << include.name;
  }
}

TEST(Layering, RuntimeKnowsNoKernel) {
  // Of cache/ what is installed, and two private headers that hold no more than a few lines.
  const std::set<std::string> shared = {"cache/capped.hpp", "cache/without_signals.hpp"};
  for (const auto& include : includes_below("runtime")) {
    if (!include.quoted || shared.count(include.name) > 0) continue;
    EXPECT_TRUE(starts_with_any(include.name, {"runtime/", "kiln/"}))
        << include.file << " includes " << include.name;
  }
  for (const auto& kernel : kernel_folders())
    for (const auto& file : sources_below("runtime"))
      EXPECT_EQ(text_of(file).find(kernel), std::string::npos) << file << " names " << kernel;
}

TEST(Layering, KernelHostCodeKnowsNoDriverAndNoOtherKernel) {
  for (const auto& include : includes_below("kernel_src")) {
    EXPECT_NE(include.name, "cuda.h") << include.file;
    EXPECT_NE(include.name, "cuda_runtime.h") << include.file;
    if (!include.quoted || is_embedded_table(include.name)) continue;
    EXPECT_TRUE(starts_with_any(include.name, {"kernel_src/", "kiln/", "jit/"}))
        << include.file << " includes " << include.name;
    if (!starts_with_any(include.name, {"kernel_src/"})) continue;
    const auto own = kernel_folder(include.file);
    const bool ours = starts_with_any(include.name, {"kernel_src/"});
    const auto other = ours ? kernel_folder(include.name) : std::string();
    if (own.empty() || other.empty() || own == "layers") continue;
    EXPECT_TRUE(other == own || other == "device" || other == "shared")
        << include.file << " includes " << include.name;
  }
}

TEST(Layering, DeviceCodeIncludesOnlyDeviceAndSharedFilesAndWhatKilnProvides) {
  for (const auto& include : includes_below("kernel_src")) {
    const auto ending = include.file.extension();
    if (ending != ".cu" && ending != ".cuh") continue;
    EXPECT_TRUE(include.quoted) << include.file << " includes <" << include.name
                                << ">: shipped kernels need no toolkit";
    const auto own = kernel_folder(include.file);
    std::vector<std::string> allowed = {"kernel_src/device/", "kernel_src/shared/",
                                        "jit/tensor_map.cuh"};
    if (own != "device") allowed.insert(allowed.end(), {"kernel_src/" + own + "/", "jit/key.cuh"});
    EXPECT_TRUE(starts_with_any(include.name, allowed))
        << include.file << " includes " << include.name;
  }
}

TEST(Layering, CliAndExamplesUseOnlyWhatIsInstalled) {
  for (const auto* folder : {"cli", "examples"})
    for (const auto& include : includes_below(folder)) {
      EXPECT_FALSE(!include.quoted && starts_with_any(include.name, {"kernel_src/", "runtime/"}))
          << include.file << " includes " << include.name;
      // Text for NVRTC, whose names are those that the project there gives its own files.
      const bool embedded =
          include.file.string().rfind("examples/outside_project/kernels/", 0) == 0;
      if (!include.quoted || include.name == "jit/key.cuh" || embedded) continue;
      EXPECT_TRUE(starts_with_any(include.name, {"kiln/", std::string(folder) + "/"}))
          << include.file << " includes " << include.name;
    }
}

TEST(Layering, PublicHeadersNameNoThirdParty) {
  for (const auto* folder : {"cache", "runtime"})
    for (const auto& include : includes_below(folder)) {
      if (!is_public(include.file)) continue;
      if (include.quoted)
        EXPECT_TRUE(starts_with_any(include.name, {"kiln/"}))
            << include.file << " includes " << include.name;
      else
        EXPECT_EQ(include.name.find_first_of("./"), std::string::npos)
            << include.file << " includes <" << include.name << ">, which is not standard C++";
    }
}

// Else the fault tests, which replace the table, would not reach them.
TEST(Layering, TheStoreMakesItsSystemCallsThroughTheTable) {
  // The table; what is no part of the store: files of keys and secrets, and looking a place over.
  const std::set<std::string> others = {"system_calls.cpp", "signing.cpp", "secret_file.cpp",
                                        "probe.cpp"};
  const std::regex call(
      "(^|[^A-Za-z0-9_>])::(openat2?|fstat(at)?|l?stat|p?read|p?writev?|fchmod(at)?|f?chown(at)?|"
      "futimens|utimensat|fsync|fdatasync|mkdir(at)?|link(at)?|rename(at2?)?|unlink(at)?|fcntl|"
      "flock|f?statv?fs|f?d?opendir|readdir|open|access|faccessat|ftruncate|mmap)\\(");
  for (const auto& file : sources_below("cache")) {
    if (others.count(file.filename().string()) > 0) continue;
    std::istringstream lines(text_of(file));
    for (std::string line; std::getline(lines, line);)
      EXPECT_FALSE(std::regex_search(line, call)) << file << ": " << line;
  }
}

// An embedding program may have called setlocale(): printf then writes 0,5, which is no JSON, no
// CSS and no number of Prometheus'.
TEST(Layering, TheLibraryWritesNoFractionByPrintf) {
  const std::regex fraction(R"("[^"\n]*%[-+#0']*[0-9*]*(\.[0-9*]*)?l?[aefgAEFG])");
  for (const auto* folder : {"cache", "runtime"})
    for (const auto& file : sources_below(folder)) {
      if (file.lexically_relative(kRoot).string().rfind("runtime/bench/", 0) == 0) continue;
      const auto text = text_of(file);
      EXPECT_FALSE(std::regex_search(text, fraction)) << file << ": use decimal_text()";
    }
  EXPECT_TRUE(std::regex_search(std::string(R"(("%.*f", 1))"), fraction));
}

TEST(Layering, TheFakeDriverKnowsNothingOfKiln) {
  for (const auto& include : includes_below("tests/support/fake_driver")) {
    if (!include.quoted) continue;
    EXPECT_TRUE(starts_with_any(include.name, {"tests/support/fake_driver/"}))
        << include.file << " includes " << include.name;
  }
}

TEST(Layering, EveryHeaderHasPragmaOnceAndStatesItsDuty) {
  for (const auto* folder : {"cache", "runtime", "kernel_src", "cli"})
    for (const auto& file : sources_below(folder)) {
      if (file.extension() != ".hpp" && file.extension() != ".cuh") continue;
      const auto text = text_of(file);
      EXPECT_NE(text.find("#pragma once"), std::string::npos) << file;
      EXPECT_EQ(text.rfind("//", 0), 0u) << file << " does not open with what it is for";
    }
}

TEST(Layering, EveryKernelFolderIsComplete) {
  ASSERT_FALSE(kernel_folders().empty());
  for (const auto& kernel : kernel_folders()) {
    const auto folder = kRoot / "kernel_src" / kernel;
    for (const auto* name :
         {"args.hpp", "key.hpp", "plan.hpp", "plan.cpp", "launch.hpp", "launch.cpp",
          "reference.hpp", "reference.cpp", "bench.hpp", "bench.cpp", "NOTES.md"})
      EXPECT_TRUE(fs::exists(folder / name)) << kernel << " has no " << name;
    const auto programs = sources_below("kernel_src/" + kernel);
    EXPECT_TRUE(std::any_of(programs.begin(), programs.end(),
                            [](const auto& file) { return file.extension() == ".cu"; }))
        << kernel << " has no device code";
    EXPECT_TRUE(fs::exists(kRoot / "tests/kernel_src" / (kernel + "_test.cpp")))
        << kernel << " has no test";
  }
}

TEST(Layering, NoFileGrowsOutOfSight) {
  for (const auto* folder : {"cache", "runtime", "kernel_src", "cli", "examples"})
    for (const auto& file : sources_below(folder)) {
      const auto text = text_of(file);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 400) << file;
    }
}
