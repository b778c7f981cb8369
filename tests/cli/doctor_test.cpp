// kiln doctor: what is in force, where it came from, what is wrong; and that it changes nothing.
#include <sys/stat.h>
#include <unistd.h>

#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class Doctor : public CliTest {
 protected:
  /// The findings of a run that must end with `exit_code`.
  nlohmann::json doctor(int exit_code, std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), {"doctor", "--json"});
    const auto result = kiln(std::move(arguments));
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    EXPECT_EQ(result.err, "");
    const auto object = object_of(result);
    EXPECT_EQ(object["ready"], exit_code == 0);
    nlohmann::json checks;
    for (const auto& check : object["checks"]) checks[check["name"].get<std::string>()] = check;
    return checks;
  }
};

TEST_F(Doctor, SaysWhereEachSettingCameFromAndWritesNothing) {
  KILN_REQUIRES_NVRTC();
  auto checks = doctor(0);
  EXPECT_EQ(checks["cache"]["origin"], "default, by HOME");
  EXPECT_EQ(checks["cache"]["facts"]["directory"], (home() / ".cache/kiln").string());
  EXPECT_EQ(checks["cache"]["facts"]["exists"], false);
  EXPECT_EQ(checks["cache"]["facts"]["writable"], true);
  EXPECT_EQ(checks["jobs"]["origin"], "default");
  EXPECT_EQ(checks["NVRTC"]["state"], "ok");
  EXPECT_EQ(checks["compile"]["state"], "ok");

  environment_["KILN_CACHE_DIR"] = cache().string();
  environment_["KILN_JOBS"] = "3";
  environment_["KILN_ARCH"] = "sm_90a,sm_80";
  checks = doctor(0);
  EXPECT_EQ(checks["cache"]["origin"], "KILN_CACHE_DIR");
  EXPECT_EQ(checks["jobs"]["origin"], "KILN_JOBS");
  EXPECT_EQ(checks["jobs"]["facts"]["jobs"], 3);
  EXPECT_EQ(checks["architectures"]["origin"], "KILN_ARCH");
  EXPECT_EQ(checks["compile"]["facts"]["targets"].size(), 2u);
  EXPECT_EQ(checks["environment"]["facts"]["KILN_JOBS"], "3");

  const auto other = (directory_ / "other").string();
  checks = doctor(0, {"--cache-dir", other, "-j", "5", "--arch", "sm_90a"});
  EXPECT_EQ(checks["cache"]["origin"], "--cache-dir");
  EXPECT_EQ(checks["cache"]["facts"]["directory"], other);
  EXPECT_EQ(checks["jobs"]["origin"], "--jobs");
  EXPECT_EQ(checks["architectures"]["origin"], "--arch");

  std::vector<std::filesystem::path> there;
  for (const auto& file : std::filesystem::recursive_directory_iterator(directory_.path()))
    // The driver makes a cache of its own when it is opened.
    if (file.path().string().find("/.nv") == std::string::npos) there.push_back(file.path());
  EXPECT_EQ(there, std::vector{home()}) << "it made something";
}

TEST_F(Doctor, CountsWhatIsInTheCacheAndLeavesItAsItIs) {
  KILN_REQUIRES_NVRTC();
  ASSERT_EQ(prewarm().exit_code, 0);
  const auto changed = [&] {
    std::vector<std::pair<std::filesystem::path, long>> times;
    for (const auto& file : std::filesystem::recursive_directory_iterator(cache())) {
      struct stat status {};
      EXPECT_EQ(::stat(file.path().c_str(), &status), 0);
      times.emplace_back(file.path(), status.st_ctim.tv_nsec);
    }
    return times;
  };
  const auto before = changed();
  const auto checks = doctor(0, {"--cache-dir", cache().string()});
  EXPECT_EQ(checks["cache"]["facts"]["entries"], 3);
  EXPECT_GT(checks["cache"]["facts"]["total_bytes"].get<int>(), 0);
  EXPECT_EQ(changed(), before);
}

TEST_F(Doctor, EachThingThatCompilingOrStoringNeedsIsAProblemWithACure) {
  const struct {
    std::map<std::string, std::string> variables;
    const char* check;
    const char* said;
  } faults[] = {
      {{{"KILN_NVRTC", "/no/such/nvrtc"}}, "NVRTC", "/no/such/nvrtc"},
      {{{"KILN_JOBS", "many"}}, "KILN_JOBS", "whole number"},
      {{{"KILN_ARCH", "sm_90a,,"}}, "KILN_ARCH", "empty"},
      {{{"KILN_SOURCE_DIR", "/no/such/tree"}}, "source directory", "unset it"},
      {{{"KILN_CACHE_DIR", "/dev/null"}}, "cache", "not a directory"},
      {{{"NV_NVVM_VERSION", "1"}}, "cache", "unset NV_NVVM_VERSION"},
      {{{"HOME", ""}}, "cache", "KILN_CACHE_DIR"},
  };
  const auto clean = environment_;
  for (const auto& fault : faults) {
    environment_ = clean;
    for (const auto& [name, value] : fault.variables) environment_[name] = value;
    const auto checks = doctor(3);
    ASSERT_TRUE(checks.contains(fault.check)) << fault.check;
    EXPECT_EQ(checks[fault.check]["state"], "problem") << checks[fault.check];
    EXPECT_NE(checks[fault.check].dump().find(fault.said), std::string::npos)
        << checks[fault.check];
  }
}

TEST_F(Doctor, AMistypedVariableAndATooOldTargetShow) {
  environment_["KILN_CACHEDIR"] = "/x";
  const auto text = kiln({"doctor", "--arch", "sm_9"});
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_NE(text.out.find("KILN_CACHEDIR is set and means nothing"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("not ready: "), std::string::npos) << text.out;
}

TEST_F(Doctor, ADirectoryThatIsNotOursIsNotWritable) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
  if (run_process({.arguments = {KILN_CLI_PATH, "--help"}, .user = kNobody}).exit_code == 127)
    GTEST_SKIP() << "another user cannot reach " << KILN_CLI_PATH;
  // The root may be written, and what lies in it may not.
  std::filesystem::create_directories(cache() / "v1/e/00");
  std::filesystem::permissions(cache(), std::filesystem::perms::all);
  auto wish = request({"doctor", "--json", "--cache-dir", cache().string()});
  wish.user = kNobody;
  const auto result = run_process(wish);
  EXPECT_EQ(result.exit_code, 3) << result.out;
  EXPECT_NE(result.out.find("v1: Permission denied"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace kiln::test
