// Every shipped kernel, with every key of every manifest, through kiln prewarm and the NVRTC that
// is installed, or the one that KILN_NVRTC names: tests/install/nvrtc_matrix.sh runs this with
// several.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>

#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

using Options = std::vector<std::string>;

// Every combination of the manifest's parameters, as options of kiln prewarm.
std::vector<Options> combinations(const nlohmann::json& manifest) {
  std::vector<Options> all = {{"--model", manifest.at("model")}};
  for (const auto& [name, parameter] : manifest.at("parameters").items()) {
    std::vector<Options> longer;
    for (const auto& options : all)
      for (const auto& value : parameter.at("values")) {
        longer.push_back(options);
        longer.back().push_back("--" + name);
        longer.back().push_back(value.is_string() ? value.get<std::string>() : value.dump());
      }
    all = std::move(longer);
  }
  return all;
}

class NvrtcMatrix : public CliTest {
 protected:
  void SetUp() override {
#ifdef KILN_SANITIZE
    GTEST_SKIP() << "NVRTC compiles the same as in the release build, for minutes";
#endif
    // One that is named must serve: no skipping then.
    if (const char* named = std::getenv("KILN_NVRTC"); named != nullptr)
      environment_["KILN_NVRTC"] = named;
    else
      KILN_REQUIRES_NVRTC();
  }
};

TEST_F(NvrtcMatrix, EveryKeyOfEveryManifestCompiles) {
  std::size_t manifests = 0;
  std::set<std::string> keys, listed, compiled;
  std::string toolchain;
  const std::filesystem::path folder = KILN_SOURCE_TREE "/kernel_src/manifests";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream text(file.path());
    const auto manifest = nlohmann::json::parse(text);
    ++manifests;
    for (const auto& kernel : manifest.at("kernels")) listed.insert(kernel.at("kernel"));
    for (const auto& options : combinations(manifest)) {
      // Other releases than the build's: the one architecture that is run as well.
      const bool named = std::getenv("KILN_NVRTC") != nullptr;
      Options arguments = {"prewarm",     "--arch",         named ? "sm_90a" : "sm_90a,sm_100a",
                           "--cache-dir", cache().string(), "--json"};
      arguments.insert(arguments.end(), options.begin(), options.end());
      SCOPED_TRACE(::testing::PrintToString(options));
      const auto result = kiln(arguments);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      const auto report = report_of(result);
      EXPECT_EQ(report["failed"], 0) << result.out;
      EXPECT_EQ(report["not_stored"], 0);
      std::map<std::string, std::size_t> of_architecture;
      for (const auto& kernel : report["kernels"]) {
        keys.insert(kernel.at("key"));
        compiled.insert(kernel.at("kernel"));
        ++of_architecture[kernel.at("arch")];
      }
      EXPECT_GT(of_architecture["sm_90a"], 0u);
      if (!named) {
        EXPECT_EQ(of_architecture["sm_100a"], of_architecture["sm_90a"]);
      }
      toolchain = report["toolchain"];
    }
  }
  EXPECT_GT(manifests, 0u);
  EXPECT_EQ(compiled, listed);  // none that no combination needs
  EXPECT_EQ(entries().size(), keys.size());
  std::cout << keys.size() << " keys of " << manifests << " manifests compiled by " << toolchain
            << '\n';
}

}  // namespace
}  // namespace kiln::test
