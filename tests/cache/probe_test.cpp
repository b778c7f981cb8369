// What a directory would do for a store, found out without a trace.
#include "kiln/cache/probe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "kiln/cache/store.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

TEST(Probe, ADirectoryThatIsNotThereWouldBeMadeInTheNearestOne) {
  const TemporaryDirectory directory;
  const auto found = cache::probe(directory / "a/b/c/");
  EXPECT_FALSE(found.exists);
  EXPECT_EQ(found.nearest, directory.path());
  EXPECT_EQ(found.trouble, "");
  EXPECT_NE(found.file_system, "");
  EXPECT_GT(found.free_bytes, 0u);
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(Probe, AStoreIsLookedAtAndLeftAsItIs) {
  const TemporaryDirectory directory;
  auto store = cache::Store::open({.directory = directory / "store"});
  ASSERT_TRUE(store);
  ASSERT_TRUE(store->publish("key", "{}", {}).ok());
  const auto changed = fs::last_write_time(directory / "store");
  const auto found = cache::probe(directory / "store");
  EXPECT_TRUE(found.exists);
  EXPECT_EQ(found.nearest, directory / "store");
  EXPECT_EQ(found.trouble, "");
  EXPECT_EQ(fs::last_write_time(directory / "store"), changed);
  if (found.anonymous_files) {
    EXPECT_EQ(found.locks, true);
  }
}

TEST(Probe, WhatStandsInTheWayIsNamed) {
  const TemporaryDirectory directory;
  write_file(directory / "file", "");
  fs::create_symlink(directory / "nothing", directory / "link");
  EXPECT_NE(cache::probe(directory / "file/below").trouble.find("file is not a directory"),
            std::string::npos);
  EXPECT_NE(cache::probe(directory / "link").trouble.find("link to a directory"),
            std::string::npos);
  EXPECT_NE(cache::probe("").trouble, "");
}

TEST(Probe, APartOfTheStoreThatIsNotOursIsTrouble) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
  const TemporaryDirectory directory;
  const auto root = directory / "store";
  fs::create_directories(root / "v1/e/00");
  for (const auto& path : {root, root / "v1", root / "v1/e"}) fs::permissions(path, fs::perms::all);
  const auto as_nobody = [&] {
    return in_child([&]() -> int {
      if (::setresuid(kNobody, kNobody, kNobody) != 0) return 2;
      return cache::probe(root).trouble.find("v1/e/00: Permission denied") != std::string::npos;
    });
  };
  EXPECT_EQ(as_nobody(), 1);
  fs::permissions(root / "v1/e/00", fs::perms::all);
  EXPECT_EQ(as_nobody(), 0);
}

}  // namespace
}  // namespace kiln::test
