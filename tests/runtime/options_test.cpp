#include "kiln/options.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

TEST(Options, SetUpTheCache) {
  const auto options = options_from(environment_of({{"KILN_CACHE_READONLY", "/a:/b c::/d"},
                                                    {"KILN_CACHE_USERS", "1000,0,4294967295"},
                                                    {"KILN_CACHE_GROUP", "50"},
                                                    {"KILN_CACHE_MAX_BYTES", "3M"},
                                                    {"KILN_CACHE_MIN_FREE_BYTES", "0"}}));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->read_only_caches, (std::vector<std::filesystem::path>{"/a", "/b c", "/d"}));
  EXPECT_EQ(options->cache_trust.users, (std::vector<std::uint32_t>{1000, 0, 4294967295}));
  EXPECT_EQ(options->cache_trust.group, 50U);
  EXPECT_EQ(options->cache_limits.max_bytes, 3U << 20);
  EXPECT_EQ(options->cache_limits.min_free_bytes, 0U);

  const auto defaults = options_from(environment_of({}));
  ASSERT_TRUE(defaults);
  EXPECT_TRUE(defaults->read_only_caches.empty() && defaults->cache_trust.users.empty());
  EXPECT_FALSE(defaults->cache_trust.group || defaults->cache_limits.min_free_bytes);
  EXPECT_EQ(defaults->cache_limits.max_bytes, std::uint64_t{8} << 30);
}

TEST(Options, RefuseCacheSettingsThatAreNoNumbers) {
  for (const auto& [name, value] :
       std::multimap<std::string, std::string>{{"KILN_CACHE_USERS", "root"},
                                               {"KILN_CACHE_GROUP", "-1"},
                                               {"KILN_CACHE_GROUP", "4294967295"},
                                               {"KILN_CACHE_MAX_BYTES", "8 G"},
                                               {"KILN_CACHE_MIN_FREE_BYTES", "99999999999T"}}) {
    const auto options = options_from(environment_of({{name, value}}));
    ASSERT_FALSE(options) << name;
    EXPECT_EQ(options.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(options.error().message().find(name + " is \"" + value), std::string::npos);
  }
}

TEST(Options, BytesHaveUnits) {
  const struct {
    const char* text;
    std::optional<std::uint64_t> bytes;
  } cases[] = {{"0", 0},
               {"17", 17},
               {"2K", 2048},
               {"1T", std::uint64_t{1} << 40},
               {"16777215T", std::uint64_t{16777215} << 40},
               {"16777216T", std::nullopt},
               {"", std::nullopt},
               {"K", std::nullopt},
               {"1k", std::nullopt},
               {"1.5G", std::nullopt},
               {"-1", std::nullopt}};
  for (const auto& c : cases) EXPECT_EQ(bytes_from(c.text), c.bytes) << c.text;
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
