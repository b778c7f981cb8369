#include "runtime/nvrtc_search.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "runtime/loader_cache.hpp"
#include "tests/runtime/fake_tree.hpp"

namespace kiln {
namespace {

using test::environment_of;
using test::FakeTree;
using test::library_bytes;
using test::put_nvrtc;

// Everything within the tree.
SearchRoots roots_in(const FakeTree& tree) {
  return {.prefix = tree / "usr/local",
          .loader_cache = tree / "etc/ld.so.cache",
          .loader_directories = {tree / "usr/lib/multiarch", tree / "usr/lib64"},
          .python_roots = {tree / "usr/local/lib", tree / "usr/lib"}};
}

bool mentions(const NvrtcSearch& search, const std::string& path, const std::string& why) {
  for (const auto& tried : search.tried)
    if (tried.starts_with(path + ": ") && tried.find(why) != std::string::npos) return true;
  return false;
}

// The bytes of a loader's cache that lists these names and paths.
std::string cache_bytes(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string bytes = "glibc-ld.so.cache1.1";
  test::put(bytes, 20, entries.size(), 4);
  test::put(bytes, 44, 0, 4);
  std::size_t text = 48 + entries.size() * 24;
  std::string texts;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, path] = entries[i];
    test::put(bytes, 48 + i * 24, 0x303, 4);
    test::put(bytes, 48 + i * 24 + 4, text + texts.size(), 4);
    texts += name + '\0';
    test::put(bytes, 48 + i * 24 + 8, text + texts.size(), 4);
    texts += path + '\0';
    test::put(bytes, 48 + i * 24 + 16, 0, 8);
  }
  return bytes + texts;
}

TEST(NvrtcSearch, FindsEachLayoutByItsRule) {
  const struct {
    std::string directory;
    int major;
    int minor;
    std::string variable;
    std::string value;
    std::string how;
  } cases[] = {
      {"opt/cuda/lib64", 13, 0, "CUDA_HOME", "opt/cuda", "CUDA_HOME"},
      {"opt/cuda/lib", 12, 8, "CUDA_PATH", "opt/cuda", "CUDA_PATH"},
      {"usr/local/cuda/lib64", 13, 1, "", "", "the usual prefix"},
      {"usr/local/cuda-12.9/lib64", 12, 9, "", "", "the usual prefix"},
      {"somewhere", 13, 0, "LD_LIBRARY_PATH", "somewhere", "LD_LIBRARY_PATH"},
      {"usr/lib/multiarch", 12, 9, "", "", "the loader's directories"},
      {"venv/lib/python3.11/site-packages/nvidia/cu13/lib", 13, 5, "VIRTUAL_ENV", "venv",
       "VIRTUAL_ENV"},
      {"conda/lib", 12, 9, "CONDA_PREFIX", "conda", "CONDA_PREFIX"},
      {"home/.local/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib", 12, 8, "HOME", "home",
       "the user's Python packages"},
      {"usr/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib", 12, 8, "", "",
       "the system's Python packages"},
      {"usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib", 13, 0, "", "",
       "the system's Python packages"},
  };
  for (const auto& c : cases) {
    const FakeTree tree;
    put_nvrtc(tree, c.directory, c.major, c.minor);
    const auto environment = c.variable.empty()
                                 ? environment_of({})
                                 : environment_of({{c.variable, (tree / c.value).string()}});
    const auto search = find_nvrtc({}, environment, roots_in(tree));
    ASSERT_TRUE(search.found) << c.directory << "\n" << no_nvrtc_error(search).message();
    EXPECT_EQ(search.found->library.parent_path(), tree / c.directory);
    EXPECT_EQ(search.found->major, c.major);
    EXPECT_EQ(search.found->minor, c.minor);
    EXPECT_EQ(search.found->how_found, c.how) << c.directory;
    EXPECT_EQ(search.found->ambiguity, "");
  }
}

TEST(NvrtcSearch, GoesByOrderAndByVersion) {
  const FakeTree tree;
  put_nvrtc(tree, "usr/local/cuda-12.9/lib64", 12, 9);
  put_nvrtc(tree, "usr/local/cuda-12.10/lib64", 12, 10);
  put_nvrtc(tree, "usr/lib64", 13, 0);
  const auto by_prefix = find_nvrtc({}, environment_of({}), roots_in(tree));
  ASSERT_TRUE(by_prefix.found);
  EXPECT_EQ(by_prefix.found->minor, 10);  // 12.10 is newer than 12.9

  put_nvrtc(tree, "home/lib64", 12, 8);
  put_nvrtc(tree, "home/lib64", 13, 2);
  const auto by_home =
      find_nvrtc({}, environment_of({{"CUDA_HOME", (tree / "home").string()}}), roots_in(tree));
  ASSERT_TRUE(by_home.found);
  EXPECT_EQ(by_home.found->major, 13);  // the newest in the directory
}

TEST(NvrtcSearch, TakesNothingElseThanTheExplicitPath) {
  const FakeTree tree;
  put_nvrtc(tree, "usr/local/cuda/lib64", 13, 0);
  put_nvrtc(tree, "good/lib64", 13, 0);
  tree.write("empty/readme", "");
  tree.write("text/libnvrtc.so.13", "no library");
  const auto environment = environment_of({{"CUDA_HOME", (tree / "good").string()}});
  for (const auto* bad : {"missing", "empty", "text", "text/libnvrtc.so.13", "empty/readme"}) {
    const auto search = find_nvrtc(tree / bad, environment, roots_in(tree));
    EXPECT_FALSE(search.found) << bad;
    ASSERT_FALSE(search.tried.empty()) << bad;
    for (const auto& tried : search.tried)
      EXPECT_TRUE(tried.starts_with((tree / bad).string())) << tried;
  }
}

TEST(NvrtcSearch, TakesAnExplicitFileDirectoryToolkitOrEnvironment) {
  const FakeTree tree;
  put_nvrtc(tree, "toolkit/lib64", 13, 0);
  put_nvrtc(tree, "venv/lib/python3.11/site-packages/nvidia/cu13/lib", 13, 5);
  tree.link("elsewhere/libnvrtc.so.13", tree / "toolkit/lib64/libnvrtc.so.13");
  const std::pair<const char*, int> cases[] = {{"toolkit/lib64/libnvrtc.so.13", 0},
                                               {"toolkit/lib64", 0},
                                               {"toolkit", 0},
                                               {"elsewhere/libnvrtc.so.13", 0},
                                               {"venv", 5},
                                               {"venv/lib/python3.11/site-packages", 5}};
  for (const auto& [path, minor] : cases) {
    const auto search = find_nvrtc(tree / path, environment_of({}), roots_in(tree));
    ASSERT_TRUE(search.found) << path << no_nvrtc_error(search).message();
    EXPECT_EQ(search.found->minor, minor) << path;
    EXPECT_TRUE(search.found->library.is_absolute());
  }
}

TEST(NvrtcSearch, SaysWhyItPassedOverAFileAndGoesOn) {
  const auto builtins = library_bytes({.soname = "libnvrtc-builtins.so.13.0"});
  const auto nvrtc = library_bytes({.soname = "libnvrtc.so.13"});
  const struct {
    std::string library;
    std::string builtins_name;
    std::string builtins;
    std::string why;
  } cases[] = {
      {"text", "", "", "too short for an ELF file"},
      {std::string(200, 't'), "", "", "not an ELF file"},
      {library_bytes({.soname = "libnvrtc.so.13", .machine = 8}), "", "", "another machine"},
      {library_bytes({.soname = "libother.so.13"}), "", "", "not NVRTC"},
      {library_bytes({.soname = "libnvrtc.so.11.2"}), "", "", "older than 12.8"},
      {nvrtc, "", "", "no libnvrtc-builtins.so.13.<minor> beside it"},
      {nvrtc, "libnvrtc-builtins.alt.so.13.0", builtins, "beside it"},
      {nvrtc, "libnvrtc-builtins.so.12.9", builtins, "beside it"},
      {nvrtc, "libnvrtc-builtins.so.13.0", "text", "too short"},
      {nvrtc, "libnvrtc-builtins.so.13.1", builtins, "calls itself"},
      {library_bytes({.soname = "libnvrtc.so.12"}), "libnvrtc-builtins.so.12.6",
       library_bytes({.soname = "libnvrtc-builtins.so.12.6"}), "NVRTC 12.6 is older than 12.8"},
  };
  for (const auto& c : cases) {
    const FakeTree tree;
    tree.write("home/lib64/libnvrtc.so.13", c.library);
    if (!c.builtins_name.empty()) tree.write("home/lib64/" + c.builtins_name, c.builtins);
    put_nvrtc(tree, "usr/lib64", 13, 3);
    const auto search =
        find_nvrtc({}, environment_of({{"CUDA_HOME", (tree / "home").string()}}), roots_in(tree));
    ASSERT_TRUE(search.found) << c.why;
    EXPECT_EQ(search.found->minor, 3);
    EXPECT_TRUE(mentions(search, (tree / "home/lib64/libnvrtc.so.13").string(), c.why))
        << c.why << "\n"
        << no_nvrtc_error(search).message();
  }
}

TEST(NvrtcSearch, ListsEveryPathAndTheCureInItsError) {
  const FakeTree tree;
  const auto search = find_nvrtc({},
                                 environment_of({{"CUDA_HOME", (tree / "home").string()},
                                                 {"LD_LIBRARY_PATH", (tree / "ld").string()}}),
                                 roots_in(tree));
  ASSERT_FALSE(search.found);
  const auto error = no_nvrtc_error(search);
  EXPECT_EQ(error.code(), ErrorCode::no_toolchain);
  for (const auto* path : {"home/lib64", "home/lib", "usr/local/cuda/lib64", "ld",
                           "etc/ld.so.cache", "usr/lib/multiarch", "usr/lib64"})
    EXPECT_NE(error.message().find((tree / path).string() + ": "), std::string::npos) << path;
  for (const auto* cure : {"pip install nvidia-cuda-nvrtc", "KILN_NVRTC", "CUDA toolkit"})
    EXPECT_NE(error.message().find(cure), std::string::npos) << cure;
}

TEST(NvrtcSearch, TellsTheMinorByTheRealNameElseTakesTheNewestAndSaysSo) {
  const FakeTree tree;
  put_nvrtc(tree, "lib", 12, 8);
  tree.write("lib/libnvrtc-builtins.so.12.10",
             library_bytes({.soname = "libnvrtc-builtins.so.12.10"}));
  const auto unclear = find_nvrtc(tree / "lib", environment_of({}), roots_in(tree));
  ASSERT_TRUE(unclear.found);
  EXPECT_EQ(unclear.found->minor, 10);
  EXPECT_NE(unclear.found->ambiguity.find("12.10 12.8; took 12.10"), std::string::npos)
      << unclear.found->ambiguity;

  std::error_code error;
  std::filesystem::rename(tree / "lib/libnvrtc.so.12", tree / "lib/libnvrtc.so.12.8.93", error);
  tree.link("lib/libnvrtc.so.12", "libnvrtc.so.12.8.93");
  const auto clear = find_nvrtc(tree / "lib", environment_of({}), roots_in(tree));
  ASSERT_TRUE(clear.found);
  EXPECT_EQ(clear.found->minor, 8);
  EXPECT_EQ(clear.found->ambiguity, "");
}

TEST(NvrtcSearch, ReadsTheBuildIdsElseDigestsTheContent) {
  const FakeTree tree;
  put_nvrtc(tree, "lib", 13, 0);
  const auto noted = find_nvrtc(tree / "lib", environment_of({}), roots_in(tree));
  ASSERT_TRUE(noted.found);
  EXPECT_EQ(noted.found->library_build_id, "6c696231332e30");  // "lib13.0"
  tree.write("lib/libnvrtc.so.13", library_bytes({.soname = "libnvrtc.so.13"}));
  const auto digested = find_nvrtc(tree / "lib", environment_of({}), roots_in(tree));
  ASSERT_TRUE(digested.found);
  EXPECT_TRUE(digested.found->library_build_id.starts_with("xxh3-"));
  EXPECT_TRUE(ToolchainId::from_text(digested.found->toolchain().to_text()));
}

TEST(NvrtcSearch, FollowsTheLoadersCache) {
  const FakeTree tree;
  put_nvrtc(tree, "a", 12, 9);
  put_nvrtc(tree, "b", 13, 0);
  const auto bytes = cache_bytes({{"libother.so.1", "/other"},
                                  {"libnvrtc.so.12", (tree / "a/libnvrtc.so.12").string()},
                                  {"libnvrtc.alt.so.13", (tree / "b/libnvrtc.alt.so.13").string()},
                                  {"libnvrtc.so.13", (tree / "b/libnvrtc.so.13").string()}});
  // Alone, and behind a table in the old format.
  std::string old = "ld.so-1.7.0";
  test::put(old, 12, 1, 4);
  old.resize(32, '\0');
  for (const auto& cache : {bytes, old + bytes}) {
    tree.write("etc/ld.so.cache", cache);
    const auto search = find_nvrtc({}, environment_of({}), roots_in(tree));
    ASSERT_TRUE(search.found) << no_nvrtc_error(search).message();
    EXPECT_EQ(search.found->library, tree / "b/libnvrtc.so.13");
    EXPECT_EQ(search.found->how_found, "the loader's cache");
  }
}

TEST(LoaderCache, SurvivesEveryTruncationAndManyFlips) {
  const auto good = cache_bytes({{"libnvrtc.so.12", "/a/libnvrtc.so.12"}, {"libb.so", "/b"}});
  for (std::size_t size = 0; size <= good.size(); ++size)
    static_cast<void>(loader_cache_paths(good.substr(0, size), "libnvrtc"));
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    auto bytes = good;
    for (int flips = 0; flips < 3; ++flips)
      bytes[20 + random() % (bytes.size() - 20)] = static_cast<char>(random());
    static_cast<void>(loader_cache_paths(bytes, "libnvrtc"));
  }
}

}  // namespace
}  // namespace kiln
