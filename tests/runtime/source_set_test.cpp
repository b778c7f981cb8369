#include "runtime/source_set.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.hpp"

namespace kiln {
namespace {

using namespace std::string_view_literals;

std::string text_of(const SourceSet& sources, std::string_view name) {
  const auto found = sources.find(name);
  if (!found) return "error: " + found.error().message();
  return *found ? *(*found)->text : "none";
}

TEST(SourceSet, TakesRelativePathsWithoutDots) {
  for (const auto name : {"a.cu"sv, "kernel_src/device/mma.cuh"sv, "with blank/\xC3\xA9;%.h"sv,
                          "a..b/.hidden"sv, "..."sv})
    EXPECT_TRUE(check_include_name(name)) << name;
  for (const auto name : {""sv, "/a.h"sv, "a//b.h"sv, "a/"sv, "./a.h"sv, "a/./b.h"sv, "../a.h"sv,
                          "a/../b.h"sv, ".."sv, "."sv, "a\\b.h"sv, "a\nb.h"sv, "a\0b"sv, "a\x7F"sv,
                          "a\"b"sv, "a<b"sv, "a>b"sv, "jit/key.cuh"sv, "jit/tensor_map.cuh"sv}) {
    const auto status = check_include_name(name);
    ASSERT_FALSE(status) << name;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument) << name;
  }
}

TEST(SourceSet, KeepsOneTextForOneName) {
  SourceSet sources;
  EXPECT_TRUE(sources.add("a.h", "int a;"));
  EXPECT_TRUE(sources.add("a.h", "int a;"));
  const auto status = sources.add("a.h", "int b;");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
  EXPECT_NE(status.error().message().find("a.h"), std::string::npos);
  EXPECT_EQ(text_of(sources, "a.h"), "int a;");
  EXPECT_EQ(text_of(sources, "b.h"), "none");
  EXPECT_EQ(sources.names(), std::vector<std::string>{"a.h"});
}

TEST(SourceSet, StripsAByteOrderMark) {
  SourceSet sources;
  EXPECT_TRUE(sources.add("a.h", "\xEF\xBB\xBFint a;\r\n"));
  EXPECT_TRUE(sources.add("a.h", "int a;\r\n"));
  EXPECT_EQ(text_of(sources, "a.h"), "int a;\r\n");
}

TEST(SourceSet, RefusesAZeroByteWhereTheCompilerWouldStop) {
  SourceSet sources;
  EXPECT_EQ(sources.add("a.h", "int a;\0int b;"sv).code(), ErrorCode::invalid_argument);
}

TEST(SourceSet, TakesFilesOfTheOverrideDirectoryFirst) {
  const test::TemporaryDirectory folder;
  std::error_code failure;
  std::filesystem::create_directories(folder / "k", failure);
  SourceSet sources(folder.path());
  EXPECT_TRUE(sources.add("k/a.h", "added"));
  EXPECT_EQ(text_of(sources, "k/a.h"), "added");
  test::write_file(folder / "k/a.h",
                   "\xEF\xBB\xBF"
                   "edited");
  test::write_file(folder / "k/new.h", "only there");
  EXPECT_EQ(text_of(sources, "k/a.h"), "edited");
  EXPECT_EQ(text_of(sources, "k/new.h"), "only there");
  test::write_file(folder / "k/a.h", "edited again");
  EXPECT_EQ(text_of(sources, "k/a.h"), "edited again");
  std::filesystem::remove(folder / "k/a.h", failure);
  std::filesystem::create_symlink("new.h", folder / "k/a.h", failure);
  EXPECT_EQ(text_of(sources, "k/a.h"), "only there");
}

TEST(SourceSet, NeverLeavesTheOverrideDirectory) {
  const test::TemporaryDirectory folder;
  test::write_file(folder / "secret.h", "secret");
  std::error_code failure;
  std::filesystem::create_directories(folder / "in", failure);
  const SourceSet sources((folder / "in"));
  EXPECT_EQ(text_of(sources, "../secret.h"), "none");
  EXPECT_EQ(text_of(sources, (folder / "secret.h").string()), "none");
}

TEST(SourceSet, SaysWhenAnOverrideCannotBeRead) {
  const test::TemporaryDirectory folder;
  SourceSet sources(folder.path());
  EXPECT_TRUE(sources.add("a.h", "added"));
  ASSERT_EQ(::mkfifo((folder / "a.h").c_str(), 0600), 0);  // must not be waited for
  const auto found = sources.find("a.h");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), ErrorCode::io_failed);
  std::error_code failure;
  std::filesystem::remove(folder / "a.h", failure);
  std::filesystem::create_symlink("a.h", folder / "a.h", failure);
  EXPECT_EQ(sources.find("a.h").status().code(), ErrorCode::io_failed);
}

TEST(SourceSet, IsFilledFromManyThreads) {
  SourceSet sources;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto name = "f" + std::to_string(i);
        EXPECT_TRUE(sources.add(name, name));
        EXPECT_EQ(text_of(sources, name), name);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sources.names().size(), 200U);
}

}  // namespace
}  // namespace kiln
