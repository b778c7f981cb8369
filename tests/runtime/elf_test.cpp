#include "runtime/elf.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "tests/runtime/fake_tree.hpp"

namespace kiln {
namespace {

using test::library_bytes;
using test::LibraryFacts;

Result<SharedObject> read_bytes(const std::string& bytes) {
  return read_shared_object([&](std::uint64_t offset, std::span<std::byte> into) {
    if (offset > bytes.size() || into.size() > bytes.size() - offset) return false;
    const auto from = std::as_bytes(std::span(bytes)).subspan(static_cast<std::size_t>(offset));
    std::copy_n(from.begin(), into.size(), into.begin());
    return true;
  });
}

TEST(SharedObject, TellsItsNameMachineAndBuildId) {
  const auto object = read_bytes(library_bytes({.soname = "libx.so.7", .build_id = "\x01\xAB"}));
  ASSERT_TRUE(object);
  EXPECT_EQ(object->soname, "libx.so.7");
  EXPECT_EQ(object->build_id, "01ab");
  EXPECT_EQ(object->machine, kElfMachineHere);
}

TEST(SharedObject, FindsTheBuildIdThatPatchelfMovedAway) {
  const auto object = read_bytes(
      library_bytes({.soname = "libx.so.7", .build_id = "\x01\xAB", .note_by_section_only = true}));
  ASSERT_TRUE(object);
  EXPECT_EQ(object->build_id, "01ab");
}

TEST(SharedObject, MayHaveNeitherNameNorBuildId) {
  const auto object = read_bytes(library_bytes({}));
  ASSERT_TRUE(object);
  EXPECT_EQ(object->soname, "");
  EXPECT_EQ(object->build_id, "");
}

TEST(SharedObject, SaysWhyAFileIsNone) {
  auto small = library_bytes({});
  small[4] = 1;
  const struct {
    std::string bytes;
    std::string_view why;
  } cases[] = {
      {"", "too short"},
      {std::string(64, 'x'), "not an ELF file"},
      {small, "not a 64-bit"},
      {library_bytes({.type = 2}), "not a shared library"},
      {library_bytes({}).substr(0, 100), "cut short"},
      {library_bytes({}).substr(0, 260), "cut short"},
  };
  for (const auto& [bytes, why] : cases) {
    const auto object = read_bytes(bytes);
    ASSERT_FALSE(object) << why;
    EXPECT_NE(object.error().message().find(why), std::string::npos) << object.error().message();
  }
}

TEST(SharedObject, SurvivesEveryTruncationAndManyFlips) {
  for (const bool by_section : {false, true}) {
    const auto good = library_bytes(
        {.soname = "libx.so.7", .build_id = "0123", .note_by_section_only = by_section});
    for (std::size_t size = 0; size <= good.size(); ++size)
      static_cast<void>(read_bytes(good.substr(0, size)));
    std::mt19937 random(7);
    for (int round = 0; round < 20000; ++round) {
      auto bytes = good;
      for (int flips = 0; flips < 4; ++flips)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      static_cast<void>(read_bytes(bytes));
    }
    // Numbers so large that a sum of two wraps around.
    for (std::size_t at = 0; at + 8 <= good.size(); at += 8) {
      auto bytes = good;
      test::put(bytes, at, UINT64_MAX - 15, 8);
      static_cast<void>(read_bytes(bytes));
    }
  }
}

TEST(SharedObject, RefusesAPipeWithoutWaiting) {
  const test::FakeTree tree;
  ASSERT_EQ(::mkfifo((tree / "pipe").c_str(), 0600), 0);
  const auto object = read_shared_object(tree / "pipe");
  ASSERT_FALSE(object);
  EXPECT_EQ(object.error().code(), ErrorCode::io_failed);
}

}  // namespace
}  // namespace kiln
