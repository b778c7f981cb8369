// Runs the built kiln command over a cache directory of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/process.hpp"
#include "support/requires_nvrtc.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {

class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    std::filesystem::create_directories(home());
    environment_ = {{"HOME", home().string()}, {"TERM", "xterm"}, {"PATH", "/usr/bin:/bin"}};
    // Where the machine's NVRTC may be named; nothing else of the caller's environment counts.
    for (const char* name : {"CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
                             "CONDA_PREFIX", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"})
      if (const char* value = std::getenv(name); value != nullptr) environment_[name] = value;
  }

  std::filesystem::path home() const { return directory_ / "home"; }
  std::filesystem::path cache() const { return directory_ / "cache"; }

  ProcessRequest request(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), KILN_CLI_PATH);
    return {.arguments = std::move(arguments), .environment = environment_};
  }
  ProcessResult kiln(std::vector<std::string> arguments) const {
    return run_process(request(std::move(arguments)));
  }

  /// A manifest of three kernels that compile in no time, as those of a shipped model do not.
  static constexpr const char* kManifest = KILN_SOURCE_TREE "/tests/cli/three_kernels.json";

  /// A prewarm of it into `cache` for one architecture, with `more` arguments.
  static std::vector<std::string> prewarm_arguments(const std::filesystem::path& cache,
                                                    const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"prewarm", "--manifest",  kManifest,     "--arch",
                                          "sm_90a",  "--cache-dir", cache.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  ProcessResult prewarm(const std::vector<std::string>& more = {}) const {
    return kiln(prewarm_arguments(cache(), more));
  }

  /// Standard output as the one object that it must be; anything else fails the test.
  static nlohmann::json object_of(const ProcessResult& result) {
    auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(json.is_object()) << result.out << result.err;
    return json.is_object() ? json : nlohmann::json::object();
  }
  /// The same of a prewarm, whose counts must add up.
  static nlohmann::json report_of(const ProcessResult& result) {
    auto json = object_of(result);
    for (const char* name : {"requested", "compiled", "hits", "waited", "failed", "not_stored"})
      if (!json.contains(name) || !json[name].is_number_unsigned()) {
        ADD_FAILURE() << name << " is missing in " << result.out << result.err;
        return json;
      }
    const auto count = [&](const char* name) { return json[name].get<std::size_t>(); };
    EXPECT_EQ(count("requested"),
              count("compiled") + count("hits") + count("waited") + count("failed"));
    EXPECT_EQ(count("requested"), json["kernels"].size());
    return json;
  }

  /// The entries' files.
  std::vector<std::filesystem::path> entries() const {
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::recursive_directory_iterator(cache() / "v1/e"))
      if (file.is_regular_file()) files.push_back(file.path());
    return files;
  }

  TemporaryDirectory directory_;
  std::map<std::string, std::string> environment_;
};

}  // namespace kiln::test
