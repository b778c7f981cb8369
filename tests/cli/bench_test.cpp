// kiln bench where there is no GPU: its command line, and what it says.
#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class Bench : public CliTest {};

const std::string kKernel = "dsv41_kv_insert";

TEST_F(Bench, FaultsOfItsCommandLineAreNamed) {
  const std::pair<std::vector<std::string>, std::string> faults[] = {
      {{"bench"}, "--kernel"},
      {{"bench", "--kernel", "nope"}, "that have one are " + kKernel},
      {{"bench", "--kernel", kKernel, "--warm", "--cold"}, "--cold"},
      {{"bench", "--kernel", kKernel, "--tokens", "0"}, "8192"},
      {{"bench", "--kernel", kKernel, "--tokens", "1,many"}, "--tokens"},
      {{"bench", "--kernel", kKernel, "--rounds", "4"}, "--rounds"},
      {{"bench", "--kernel", kKernel, "--rounds", "110"}, "110 is not a multiple of 4"},
      {{"bench", "--kernel", kKernel, "--rounds", "012"}, "--rounds: 012 must be decimal digits"},
      {{"bench", "--kernel", kKernel, "--rounds", "0x14"}, "--rounds: 0x14 must be decimal digits"},
      {{"bench", "--kernel", kKernel, "--tokens", "8,010"}, "--tokens: 010 must be decimal digits"},
  };
  for (const auto& [arguments, said] : faults) {
    const auto result = kiln(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(said), std::string::npos) << said << ": " << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(Bench, WithoutAGpuItExitsWith3AndTouchesNothing) {
  // Hides the devices of a machine that has some.
  environment_["CUDA_VISIBLE_DEVICES"] = "";
  const std::vector<std::string> arguments = {"bench",       "--kernel",      kKernel, "--tokens",
                                              "1,8",         "--rounds",      "12",    "--cold",
                                              "--cache-dir", cache().string()};
  const auto result = kiln(arguments);
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.err.find("driver"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(cache()));

  auto with_json = arguments;
  with_json.emplace_back("--json");
  EXPECT_EQ(object_of(kiln(with_json))["error"]["code"], "no_device");
}

TEST_F(Bench, WithoutACacheDirectoryThereIsNothingToCompareWith) {
  environment_.erase("HOME");
  const auto result = kiln({"bench", "--kernel", kKernel});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find("KILN_CACHE_DIR"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace kiln::test
