#include "runtime/architecture.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(Architecture, ReadsTargetsAndWritesThemBack) {
  for (const auto* text :
       {"sm_75", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_121f"}) {
    const auto parsed = parse_architecture(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->to_text(), text);
  }
}

TEST(Architecture, RefusesAllElseWithACure) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "write it as"},
      {"sm_", "write it as"},
      {"sm_9", "write it as"},
      {"sm_1000", "write it as"},
      {"sm_090", "write it as"},
      {"sm_90aa", "write it as"},
      {"native", "write it as"},
      {"hopper", "write it as"},
      {"90", "write sm_90a"},
      {"9.0", "write sm_90a"},
      {"90a", "write sm_90a"},
      {"SM_90", "write sm_90a"},
      {"sm_90A", "write sm_90a"},
      {"sm90", "write sm_90a"},
      {"sm_90 ", "write sm_90a"},
      {"SM_100F", "write sm_100f"},
      {"8.6", "write sm_86"},
      {"sm_80a", "begins with sm_90a: write sm_80"},
      {"sm_90f", "begins with sm_100f: write sm_90a"},
      {"compute_90", "no machine code: write sm_90a"},
      {"compute_86", "no machine code: write sm_86"},
  };
  for (const auto& [text, cure] : cases) {
    const auto parsed = parse_architecture(text);
    ASSERT_FALSE(parsed) << text;
    // What is written as a target but gives no code is the compiler's limit, not a slip of the pen.
    const bool is_target = !std::string_view(cure).starts_with("write");
    EXPECT_EQ(parsed.error().code(),
              is_target ? ErrorCode::unsupported : ErrorCode::invalid_argument)
        << text;
    EXPECT_NE(parsed.error().message().find(cure), std::string::npos) << parsed.error().message();
  }
}

TEST(Architecture, OfADeviceIsSpecificFromNineOn) {
  EXPECT_EQ(architecture_of(8, 6), "sm_86");
  EXPECT_EQ(architecture_of(8, 9), "sm_89");
  EXPECT_EQ(architecture_of(9, 0), "sm_90a");
  EXPECT_EQ(architecture_of(10, 3), "sm_103a");
  EXPECT_EQ(architecture_of(12, 1), "sm_121a");
}

// With GPUs: tests/gpu/fork_gpu_test.cpp.
TEST(Architecture, WithoutNvmlNoneIsInstalledAndTheCureIsNamed) {
  if (::dlopen("libnvidia-ml.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "there is NVML here";
  const auto installed = installed_architectures();
  ASSERT_FALSE(installed);
  EXPECT_EQ(installed.error().code(), ErrorCode::no_device);
  EXPECT_NE(installed.error().message().find("libnvidia-ml.so.1"), std::string::npos);
  EXPECT_NE(installed.error().message().find("name the architectures"), std::string::npos);
}

TEST(Architecture, FamilyTargetsCameWithTwelveNine) {
  const std::vector<int> numbers = {100, 75, 90};
  EXPECT_EQ(with_suffixes(numbers, 12, 8),
            (std::vector<std::string>{"sm_75", "sm_90", "sm_90a", "sm_100", "sm_100a"}));
  EXPECT_EQ(with_suffixes(numbers, 12, 9),
            (std::vector<std::string>{"sm_75", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f"}));
}

}  // namespace
}  // namespace kiln
