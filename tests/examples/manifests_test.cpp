// The manifests of the examples, as far as what they say must agree with what Kiln believes.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <regex>
#include <string>

#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

// Kubernetes lets the group of fsGroup write all that is on a volume when it mounts it, and a cache
// that an undeclared group may write is off.
TEST(Manifests, ACacheOnAVolumeOfAGroupDeclaresIt) {
  for (const char* name : {"server/kubernetes.yaml", "fleet/kubernetes.yaml"}) {
    const auto text = read_file(std::filesystem::path(KILN_SOURCE_TREE) / "examples" / name);
    std::smatch group;
    ASSERT_TRUE(std::regex_search(text, group, std::regex("fsGroup: ([0-9]+)"))) << name;
    const auto count = [&](const std::string& pattern) {
      const std::regex wanted(pattern);
      return std::distance(std::sregex_iterator(text.begin(), text.end(), wanted), {});
    };
    EXPECT_GT(count("KILN_CACHE_DIR"), 0) << name;
    EXPECT_EQ(count("KILN_CACHE_GROUP,?\\s+value: \"" + group[1].str() + "\""),
              count("KILN_CACHE_DIR"))
        << name;
  }
}

}  // namespace
}  // namespace kiln::test
