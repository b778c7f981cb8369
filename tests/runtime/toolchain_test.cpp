#include "runtime/toolchain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kiln {
namespace {

const ToolchainId kId{13, 0, "65be0db342ad51a0", "08d17e32084d3171"};
constexpr std::string_view kText = "nvrtc 13.0 65be0db342ad51a0 builtins 08d17e32084d3171";

TEST(Toolchain, HasOneTextThatReadsBack) {
  EXPECT_EQ(kId.to_text(), kText);
  EXPECT_EQ(ToolchainId::from_text(kText), kId);
  const ToolchainId digested{12, 8, "xxh3-00ff", "ab"};
  EXPECT_EQ(ToolchainId::from_text(digested.to_text()), digested);
}

TEST(Toolchain, ReadsNothingElse) {
  for (const auto* text :
       {"", "nvrtc", "nvrtc 13 ab builtins cd", "nvrtc 13.0 ab builtins",
        "nvrtc 13.0 AB builtins cd", "nvrtc 13.0 ab builtins cd ", "nvrtc 13.0 ab builtins cd x",
        "nvrtc  13.0 ab builtins cd", "nvrtc 013.0 ab builtins cd", "nvrtc 13.0. ab builtins cd",
        "nvrtc 13.0 xxh3- builtins cd", "nvcc 13.0 ab builtins cd", "nvrtc 13.0 ab libs cd",
        "nvrtc 99999999999.0 ab builtins cd", "nvrtc 13.0 ../etc builtins cd"})
    EXPECT_EQ(ToolchainId::from_text(text), std::nullopt) << text;
}

TEST(Toolchain, MatchesItsVersionItsTextOrALongEnoughBuildId) {
  for (const auto* wanted : {"13.0", "65be0db3", "65be0db342ad51a0"})
    EXPECT_TRUE(kId.matches(wanted)) << wanted;
  EXPECT_TRUE(kId.matches(kText));
  for (const auto* wanted : {"", "13", "13.", "13.00", "12.9", "65be0db", "08d17e32", "nvrtc 13.0"})
    EXPECT_FALSE(kId.matches(wanted)) << wanted;
}

TEST(Toolchain, ComesNewestFirst) {
  std::vector<ToolchainId> ids = {
      {12, 9, "a", "a"}, {13, 0, "b", "a"}, {12, 10, "a", "a"}, {13, 0, "a", "b"}};
  std::sort(ids.begin(), ids.end(), newer_first);
  std::vector<std::string> texts;
  for (const auto& id : ids)
    texts.push_back(std::to_string(id.major) + "." + std::to_string(id.minor) + id.nvrtc_build_id);
  EXPECT_EQ(texts, (std::vector<std::string>{"13.0a", "13.0b", "12.10a", "12.9a"}));
}

}  // namespace
}  // namespace kiln
