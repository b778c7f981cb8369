#include "runtime/nvrtc_library.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/architecture.hpp"
#include "tests/runtime/compile_for_test.hpp"
#include "tests/runtime/fake_tree.hpp"
#include "tests/support/requires_nvrtc.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln {
namespace {

constexpr const char* kKernel = "extern \"C\" __global__ void entry(float* p) { *p = 1; }";

TEST(NvrtcLibrary, LoadsWhatTheSearchFound) {
  KILN_REQUIRES_NVRTC();
  const auto files = *test::installed_nvrtc().found;
  const auto nvrtc = NvrtcLibrary::open(files);
  ASSERT_TRUE(nvrtc) << nvrtc.error().message();
  const auto compiled = test::compile(*nvrtc, kKernel, "sm_90a");
  EXPECT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
  EXPECT_FALSE(compiled.cubin.empty());
}

TEST(NvrtcLibrary, CompilesForWhatItSaysItSupportsAndForNoOtherSuffix) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto supported = nvrtc->supported_architectures();
  ASSERT_FALSE(supported.empty());
  for (const auto& target : supported) {
    const auto parsed = parse_architecture(target);
    ASSERT_TRUE(parsed) << target;
    for (const char suffix : {'\0', 'a', 'f'}) {
      const auto asked = Architecture{parsed->sm, suffix}.to_text();
      const bool listed = std::find(supported.begin(), supported.end(), asked) != supported.end();
      if (parsed->suffix != 0) continue;  // each number once
      EXPECT_EQ(test::compile(*nvrtc, kKernel, asked).result == NVRTC_SUCCESS, listed) << asked;
    }
  }
}

TEST(NvrtcLibrary, HasACureWhereItsCodeCannotBeMapped) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer needs more memory than any limit leaves it";
#endif
  KILN_REQUIRES_NVRTC();
  const test::FakeTree tree;  // what this process has loaded is not mapped anew
  auto files = *test::installed_nvrtc().found;
  std::filesystem::copy_file(files.library, tree / "libnvrtc.so.13");
  files.library = tree / "libnvrtc.so.13";
  EXPECT_EQ(test::in_child([&] {
              unsigned long pages = 0;
              std::ifstream("/proc/self/statm") >> pages;
              const rlim_t bytes = (rlim_t{pages} << 12) + (rlim_t{32} << 20);
              const rlimit limit{bytes, bytes};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
              const auto nvrtc = NvrtcLibrary::open(files);
              if (nvrtc) return 3;
              const auto why = nvrtc.error().message();
              const bool has_cures = why.find("noexec") != std::string::npos &&
                                     why.find("ulimit -v") != std::string::npos;
              return has_cures ? 0 : 4;
            }),
            0);
}

TEST(NvrtcLibrary, NamesThePathAndTheLoadersWordsWhenItCannotLoad) {
  const test::FakeTree tree;
  test::put_nvrtc(tree, "lib", 13, 0);
  const auto search = find_nvrtc(tree / "lib", test::environment_of({}));
  ASSERT_TRUE(search.found);  // the files say the right things but cannot be loaded
  const auto nvrtc = NvrtcLibrary::open(*search.found);
  ASSERT_FALSE(nvrtc);
  EXPECT_EQ(nvrtc.error().code(), ErrorCode::no_toolchain);
  const auto message = nvrtc.error().message();
  for (const auto& part : {(tree / "lib/libnvrtc.so.13").string(),
                           (tree / "lib/libnvrtc-builtins.so.13.0: ").string()})
    EXPECT_NE(message.find(part), std::string::npos) << message;

  auto missing = *search.found;
  missing.builtins = tree / "lib/nothing";
  const auto without = NvrtcLibrary::open(missing);
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message().find("No such file"), std::string::npos)
      << without.error().message();
}

TEST(NvrtcLibrary, RefusesALibraryOfAnotherVersionThanItsBuiltins) {
  KILN_REQUIRES_NVRTC();
  auto files = *test::installed_nvrtc().found;
  files.minor += 1;
  const auto nvrtc = NvrtcLibrary::open(files);
  ASSERT_FALSE(nvrtc);
  EXPECT_NE(nvrtc.error().message().find("install one whole NVRTC"), std::string::npos)
      << nvrtc.error().message();
}

TEST(NvrtcLibrary, RefusesALibraryWithoutTheFunctions) {
  KILN_REQUIRES_NVRTC();
  auto files = *test::installed_nvrtc().found;
  files.library = files.builtins;  // loads, but is no compiler
  const auto nvrtc = NvrtcLibrary::open(files);
  ASSERT_FALSE(nvrtc);
  EXPECT_NE(nvrtc.error().message().find("it lacks nvrtcVersion"), std::string::npos)
      << nvrtc.error().message();
}

TEST(NvrtcLibrary, TakesATableOfFakes) {
  NvrtcApi api;
  api.get_num_supported_archs = [](int* count) {
    *count = 2;
    return NVRTC_SUCCESS;
  };
  api.get_supported_archs = [](int* numbers) {
    numbers[0] = 86;
    numbers[1] = 90;
    return NVRTC_SUCCESS;
  };
  const NvrtcLibrary fake(api, {.major = 12, .minor = 8});
  EXPECT_EQ(fake.supported_architectures(), (std::vector<std::string>{"sm_86", "sm_90", "sm_90a"}));
  api.get_num_supported_archs = [](int*) { return NVRTC_ERROR_INTERNAL_ERROR; };
  EXPECT_TRUE(NvrtcLibrary(api, {}).supported_architectures().empty());
}

}  // namespace
}  // namespace kiln
