#include "kiln/options.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/fake_tree.hpp"

namespace kiln {
namespace {

using test::environment_of;

TEST(Options, ComeFromTheirVariables) {
  const auto options = options_from(environment_of({{"KILN_CACHE_DIR", "/c"},
                                                    {"KILN_JOBS", "7"},
                                                    {"KILN_SOURCE_DIR", "/s"},
                                                    {"KILN_NVRTC", "/n"}}));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->cache_directory, "/c");
  EXPECT_EQ(options->jobs, 7U);
  EXPECT_EQ(options->source_directory, "/s");
  EXPECT_EQ(options->nvrtc, "/n");
}

TEST(Options, FindTheCacheDirectory) {
  const struct {
    std::map<std::string, std::string> variables;
    std::string directory;
  } cases[] = {
      {{}, ""},
      {{{"HOME", "/h"}}, "/h/.cache/kiln"},
      {{{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}, "/x/kiln"},
      {{{"HOME", "/h"}, {"XDG_CACHE_HOME", "relative"}}, "/h/.cache/kiln"},
      {{{"HOME", ""}, {"XDG_CACHE_HOME", ""}}, ""},
      {{{"HOME", "/h"}, {"KILN_CACHE_DIR", ""}}, "/h/.cache/kiln"},
      {{{"HOME", "/h"}, {"KILN_CACHE_DIR", "/c"}}, "/c"},
  };
  for (const auto& c : cases) {
    const auto options = options_from(environment_of(c.variables));
    ASSERT_TRUE(options);
    EXPECT_EQ(options->cache_directory.string(), c.directory);
  }
}

TEST(Options, RefuseABadNumberOfJobs) {
  for (const auto* jobs : {"x", "-1", "1.5", "4 ", " 4", "1025", "99999999999999999999", "0x4"}) {
    const auto options = options_from(environment_of({{"KILN_JOBS", jobs}}));
    ASSERT_FALSE(options) << jobs;
    EXPECT_EQ(options.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(options.error().message().find("KILN_JOBS is \"" + std::string(jobs)),
              std::string::npos);
  }
  for (const auto* jobs : {"", "0", "1024"})
    EXPECT_TRUE(options_from(environment_of({{"KILN_JOBS", jobs}}))) << jobs;
}

TEST(Options, ReadTheProcessEnvironment) {
  ASSERT_EQ(::setenv("KILN_TEST_VARIABLE", "v", 1), 0);
  EXPECT_EQ(process_environment()("KILN_TEST_VARIABLE"), "v");
  ASSERT_EQ(::setenv("KILN_TEST_VARIABLE", "", 1), 0);
  EXPECT_EQ(process_environment()("KILN_TEST_VARIABLE"), std::nullopt);
  ::unsetenv("KILN_TEST_VARIABLE");
  EXPECT_EQ(process_environment()("KILN_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace kiln
