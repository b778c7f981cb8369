#include "runtime/toolkit_headers.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/fake_tree.hpp"

namespace kiln {
namespace {

using test::environment_of;
using test::FakeTree;

constexpr std::string_view kCuda130 = "#ifndef X\n#define CUDA_VERSION 13000\n#endif\n";
constexpr std::string_view kCuda128 = "#define CUDA_VERSION 12080\n";

NvrtcFiles nvrtc_in(const FakeTree& tree, const std::string& directory, int major, int minor) {
  const auto name = directory + "/libnvrtc.so." + std::to_string(major);
  tree.write(name, "");
  return {.library = tree / name, .major = major, .minor = minor};
}

std::vector<std::filesystem::path> below(const FakeTree& tree, std::vector<std::string> names) {
  std::vector<std::filesystem::path> paths;
  for (const auto& name : names) paths.push_back(tree / name);
  return paths;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

TEST(ToolkitHeaders, LieBesideNvrtcInEveryLayout) {
  const struct {
    std::string libraries;
    int major;
    int minor;
    std::vector<std::pair<std::string, std::string_view>> files;
    std::vector<std::string> roots;
  } cases[] = {
      // CUDA 13: <cuda/std/...> apart.
      {"t/lib64",
       13,
       0,
       {{"t/include/cuda.h", kCuda130}, {"t/include/cccl/cuda/std/array", ""}},
       {"t/include", "t/include/cccl"}},
      // CUDA 12: all in one.
      {"t/lib64",
       12,
       8,
       {{"t/include/cuda.h", kCuda128}, {"t/include/cuda/std/array", ""}},
       {"t/include"}},
      {"t/targets/any/lib",
       13,
       0,
       {{"t/targets/any/include/cuda.h", kCuda130}},
       {"t/targets/any/include"}},
      {"t/targets/any/lib", 13, 0, {{"t/include/cuda.h", kCuda130}}, {"t/include"}},
      // Wheels.
      {"p/nvidia/cu13/lib",
       13,
       0,
       {{"p/nvidia/cu13/include/cuda.h", kCuda130}, {"p/nvidia/cu13/include/cccl/nv/target", ""}},
       {"p/nvidia/cu13/include", "p/nvidia/cu13/include/cccl"}},
      {"p/nvidia/cuda_nvrtc/lib",
       12,
       8,
       {{"p/nvidia/cuda_nvrtc/include/nvrtc.h", ""},
        {"p/nvidia/cuda_runtime/include/cuda.h", kCuda128},
        {"p/nvidia/cuda_cccl/include/nv/target", ""}},
       {"p/nvidia/cuda_runtime/include", "p/nvidia/cuda_cccl/include"}},
      // The version stands elsewhere.
      {"t/lib64",
       12,
       8,
       {{"t/include/cuda_runtime_api.h", "#define CUDART_VERSION  12080\n"}},
       {"t/include"}},
      {"t/lib64",
       12,
       8,
       {{"t/include/cuda_fp16.h", ""},
        {"t/version.json", R"({ "cuda" : { "name" : "CUDA SDK", "version" : "12.8.1" } })"}},
       {"t/include"}},
  };
  for (const auto& c : cases) {
    const FakeTree tree;
    const auto nvrtc = nvrtc_in(tree, c.libraries, c.major, c.minor);
    for (const auto& [name, text] : c.files) tree.write(name, text);
    const auto headers = find_toolkit_headers(nvrtc, environment_of({}));
    EXPECT_EQ(headers.roots, below(tree, c.roots)) << c.libraries << "\n"
                                                   << joined(headers.skipped);
  }
}

TEST(ToolkitHeaders, OfAnotherVersionAreSkippedWithAReason) {
  const FakeTree tree;
  const auto nvrtc = nvrtc_in(tree, "t/lib64", 12, 9);
  tree.write("t/include/cuda.h", kCuda128);
  tree.write("home/include/cuda.h", kCuda130);
  const auto environment = environment_of({{"CUDA_HOME", (tree / "home").string()}});
  const auto headers = find_toolkit_headers(nvrtc, environment);
  EXPECT_TRUE(headers.roots.empty());
  const auto skipped = joined(headers.skipped);
  for (const auto& reason : {(tree / "t/include").string() + ": headers of CUDA 12.8, not 12.9",
                             (tree / "home/include").string() + ": headers of CUDA 13.0, not 12.9"})
    EXPECT_NE(skipped.find(reason), std::string::npos) << skipped;
}

TEST(ToolkitHeaders, ComeFromCudaHomeWhereTheVersionFits) {
  const FakeTree tree;
  const auto nvrtc = nvrtc_in(tree, "t/lib64", 13, 0);
  tree.write("home/include/cuda.h", kCuda130);
  const auto environment = environment_of({{"CUDA_HOME", (tree / "home").string()}});
  EXPECT_EQ(find_toolkit_headers(nvrtc, environment).roots, below(tree, {"home/include"}));
}

// Without NVRTC the usual prefix is asked last, and what was passed over before is told all the
// same.
TEST(ToolkitHeaders, ThatWerePassedOverAreNamedWhereverTheSearchEnds) {
  const FakeTree tree;
  tree.write("home/include/cuda.h", kCuda130);
  const auto environment = environment_of({{"CUDA_HOME", (tree / "home").string()}});
  EXPECT_EQ(find_toolkit_headers(13, 0, environment).roots, below(tree, {"home/include"}));
  const auto headers = find_toolkit_headers(99, 9, environment);
  EXPECT_TRUE(headers.roots.empty());
  EXPECT_EQ(headers.how_found, "");
  const auto skipped = joined(headers.skipped);
  for (const auto& reason : {(tree / "home/include").string() + ": headers of CUDA 13.0, not 99.9",
                             std::string("/usr/local/cuda-99.9/include: no such directory")})
    EXPECT_NE(skipped.find(reason), std::string::npos) << skipped;
}

// A machine's own include directory may hold anybody's files, and a libc that NVRTC cannot read.
TEST(ToolkitHeaders, NeverComeFromTheSystemsIncludeDirectory) {
  const FakeTree tree;
  const auto nvrtc = nvrtc_in(tree, "usr/lib64", 13, 0);
  tree.write("usr/include/cuda.h", kCuda130);
  tree.write("usr/include/stdio.h", "");
  tree.write("usr/include/cuda_fp16.h", "#error poisoned\n");
  EXPECT_TRUE(find_toolkit_headers(nvrtc, environment_of({})).roots.empty());
}

TEST(ToolkitHeaders, FollowALinkedLibraryToItsToolkit) {
  const FakeTree tree;
  nvrtc_in(tree, "t/lib64", 13, 0);
  tree.write("t/include/cuda.h", kCuda130);
  tree.link("elsewhere/libs/libnvrtc.so.13", tree / "t/lib64/libnvrtc.so.13");
  const NvrtcFiles linked{.library = tree / "elsewhere/libs/libnvrtc.so.13", .major = 13};
  std::error_code error;
  const auto include = std::filesystem::canonical(tree / "t/include", error);
  EXPECT_EQ(find_toolkit_headers(linked, environment_of({})).roots,
            std::vector<std::filesystem::path>{include});
}

}  // namespace
}  // namespace kiln
