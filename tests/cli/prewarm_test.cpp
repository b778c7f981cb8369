// kiln prewarm, with the real compiler and no device.
#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class Prewarm : public CliTest {
 protected:
  void SetUp() override { KILN_REQUIRES_NVRTC(); }
};

TEST_F(Prewarm, ASecondRunHitsEverythingAndDoesNotLoadNvrtc) {
  const auto cold = report_of(prewarm({"--json"}));
  EXPECT_EQ(cold["compiled"], 3);
  EXPECT_EQ(cold["nvrtc_loaded"], true);
  EXPECT_EQ(cold["cache_dir"], cache().string());
  for (const auto& kernel : cold["kernels"]) {
    EXPECT_EQ(kernel["kernel"], "dsv41_kv_insert");
    EXPECT_EQ(kernel["arch"], "sm_90a");
    EXPECT_EQ(kernel["origin"], "compiled");
    EXPECT_EQ(kernel["stored"], true);
    EXPECT_EQ(kernel["key"].get<std::string>().size(), 32u);
    EXPECT_GT(kernel["bytes"].get<std::size_t>(), 0u);
    EXPECT_GT(kernel["ms"].get<double>(), 0);
    EXPECT_FALSE(kernel.contains("error"));
  }
  const auto warm = report_of(prewarm({"--json"}));
  EXPECT_EQ(warm["hits"], 3);
  EXPECT_EQ(warm["nvrtc_loaded"], false);
  EXPECT_EQ(warm["toolchain"], cold["toolchain"]);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(warm["kernels"][i]["key"], cold["kernels"][i]["key"]);
}

TEST_F(Prewarm, WithoutNvrtcAWarmRunSucceedsAndAColdOneSaysWhatWasTried) {
  ASSERT_EQ(prewarm().exit_code, 0);
  environment_["KILN_NVRTC"] = "/no/such/nvrtc";
  const auto warm = prewarm({"--json"});
  EXPECT_EQ(warm.exit_code, 0) << warm.err;
  EXPECT_EQ(report_of(warm)["hits"], 3);
  EXPECT_EQ(report_of(warm)["nvrtc_loaded"], false);

  for (const auto* empty : {"other", "more"}) {
    auto cold = kiln(prewarm_arguments(directory_ / empty, {"--json"}));
    EXPECT_EQ(cold.exit_code, 3);
    EXPECT_EQ(report_of(cold)["failed"], 3);
    EXPECT_NE(cold.err.find("/no/such/nvrtc"), std::string::npos) << cold.err;
  }
  // A hole in a warm cache is the same.
  std::filesystem::remove(entries().front());
  const auto hole = prewarm({"--json"});
  EXPECT_EQ(hole.exit_code, 3);
  EXPECT_EQ(report_of(hole)["failed"], 1);
  EXPECT_EQ(report_of(hole)["hits"], 2);
}

TEST_F(Prewarm, PipedOutputIsOneLineAKernelWithoutEscapeCodes) {
  const auto result = prewarm();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ((result.out + result.err).find('\x1b'), std::string::npos);
  EXPECT_EQ((result.out + result.err).find('\r'), std::string::npos);
  std::size_t lines = 0;
  for (auto at = result.out.find("compiled  sm_90a"); at != std::string::npos;
       at = result.out.find("compiled  sm_90a", at + 1))
    ++lines;
  EXPECT_EQ(lines, 3u) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST_F(Prewarm, ATerminalShowsABarThatFitsAndClearsItself) {
  for (const unsigned columns : {100u, 40u, 12u}) {
    std::filesystem::remove_all(cache());
    auto wish = request(prewarm_arguments(cache()));
    wish.terminal = Terminal::both;
    wish.columns = columns;
    const auto result = run_process(wish);
    ASSERT_EQ(result.exit_code, 0) << result.out;
    const auto start = result.out.find('\r');
    ASSERT_NE(start, std::string::npos) << result.out;
    const auto end = result.out.find("\x1b[K", start);
    ASSERT_NE(end, std::string::npos) << result.out;
    const auto bar = result.out.substr(start + 1, end - start - 1);
    EXPECT_NE(bar.find("0/3"), std::string::npos) << bar;
    EXPECT_LT(bar.size(), columns) << bar;
    EXPECT_EQ(bar.find('[') != std::string::npos, columns >= 40) << bar;
    // The last thing that happens to the line is that it goes, before the result is written.
    const auto cleared = result.out.rfind("\r\x1b[K");
    ASSERT_NE(cleared, std::string::npos);
    EXPECT_GT(result.out.find("three-kernels", cleared), cleared);
  }
}

TEST_F(Prewarm, ADumbTerminalAndJsonGetNoBar) {
  auto wish = request(prewarm_arguments(cache(), {"--json"}));
  wish.terminal = Terminal::standard_error;
  const auto json = run_process(wish);
  EXPECT_EQ(json.err, "");
  EXPECT_EQ(report_of(json)["requested"], 3);
  wish = request(prewarm_arguments(cache()));
  wish.terminal = Terminal::standard_error;
  wish.environment["TERM"] = "dumb";
  EXPECT_EQ(run_process(wish).err, "");
}

TEST_F(Prewarm, OptionsGoBeforeTheEnvironment) {
  environment_["KILN_CACHE_DIR"] = (directory_ / "from environment").string();
  environment_["KILN_ARCH"] = "sm_100a,sm_90a";
  const std::vector<std::string> bare = {"prewarm", "--manifest", kManifest, "--json"};
  const auto from_environment = report_of(kiln(bare));
  EXPECT_EQ(from_environment["cache_dir"], environment_["KILN_CACHE_DIR"]);
  EXPECT_EQ(from_environment["requested"], 6);
  EXPECT_EQ(from_environment["kernels"][0]["arch"], "sm_100a");

  const auto from_options = report_of(prewarm({"--json"}));
  EXPECT_EQ(from_options["cache_dir"], cache().string());
  EXPECT_EQ(from_options["requested"], 3);

  environment_.erase("KILN_CACHE_DIR");
  EXPECT_EQ(report_of(kiln(bare))["cache_dir"], (home() / ".cache/kiln").string());
}

TEST_F(Prewarm, ARelativeCacheDirectoryIsReportedAsAnAbsoluteOne) {
  auto wish = request(prewarm_arguments("relative", {"--json", "--dry-run"}));
  std::string command = "cd '" + home().string() + "' && exec";
  for (const auto& argument : wish.arguments) command += " '" + argument + "'";
  wish.arguments = {"/bin/sh", "-c", command};
  EXPECT_EQ(object_of(run_process(wish))["cache_dir"], (home() / "relative").string());
}

TEST_F(Prewarm, ArchitecturesAreRepeatedOrListedAndCountOnce) {
  const auto report =
      report_of(prewarm({"--json", "--arch", "sm_100a,sm_90a", "--arch", "sm_90a"}));
  EXPECT_EQ(report["requested"], 6);
}

TEST_F(Prewarm, ATargetThatNoDeviceAsksForIsWarnedOf) {
  const auto said = [&](const std::string& list) {
    const auto result = kiln({"prewarm", "--manifest", kManifest, "--arch", list, "--cache-dir",
                              cache().string(), "--dry-run"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_NE(
      said("sm_90").find("compiled for sm_90: on such a GPU Kiln asks for sm_90a; name sm_90a "
                         "in --arch"),
      std::string::npos);
  EXPECT_NE(said("sm_103").find("asks for sm_103a"), std::string::npos);
  EXPECT_NE(said("sm_100f").find("asks for sm_100a"), std::string::npos);
  // Who names both knows them apart.
  for (const auto* list : {"sm_90a", "sm_90,sm_90a", "sm_120a"}) EXPECT_EQ(said(list), "") << list;
  environment_["KILN_ARCH"] = "sm_90";
  const auto filled = kiln({"prewarm", "--manifest", kManifest, "--cache-dir", cache().string()});
  EXPECT_EQ(filled.exit_code, 0);
  EXPECT_NE(filled.err.find("name sm_90a in KILN_ARCH"), std::string::npos) << filled.err;
  const auto checks = object_of(kiln({"doctor", "--json"}))["checks"];
  for (const auto& check : checks)
    if (check["name"] == "architectures") {
      EXPECT_EQ(check["state"], "note");
      EXPECT_NE(check["cure"].get<std::string>().find("sm_90a"), std::string::npos);
    }
}

TEST_F(Prewarm, OddDirectoryNamesWorkByOptionAndByEnvironment) {
  const auto odd = directory_ / "a b;c%20d \xc3\xa9,e";
  const auto cold = report_of(kiln(prewarm_arguments(odd, {"--json"})));
  EXPECT_EQ(cold["not_stored"], 0);
  EXPECT_TRUE(std::filesystem::is_directory(odd / "v1/e"));
  environment_["KILN_CACHE_DIR"] = odd.string();
  const auto listed = object_of(kiln({"cache", "ls", "--json"}));
  EXPECT_EQ(listed["cache_dir"], odd.string());
  EXPECT_EQ(listed["entries"].size(), 3u);
}

TEST_F(Prewarm, ADryRunWritesNothingAndNamesTheKeysThatARunWouldMake) {
  const auto cold = object_of(prewarm({"--json", "--dry-run"}));
  EXPECT_EQ(cold["missing"], 3);
  EXPECT_FALSE(std::filesystem::exists(cache()));
  const auto real = report_of(prewarm({"--json"}));
  const auto warm = prewarm({"--json", "--dry-run"});
  EXPECT_EQ(warm.exit_code, 0);
  EXPECT_EQ(object_of(warm)["cached"], 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cold["kernels"][i]["key"], real["kernels"][i]["key"]);
    EXPECT_EQ(cold["kernels"][i]["cached"], false);
  }
}

TEST_F(Prewarm, OneKernelIsNoKernels) {
  const auto file = directory_ / "one.json";
  write_file(file, R"({"schema": 1, "model": "one", "kernels": [{"kernel": "dsv41_kv_insert",
      "key": {"heads": 0, "record": "fp8", "page_slots": 128, "ratio": 1}}]})");
  const auto one = [&](const char* flag) {
    return kiln({"prewarm", "--manifest", file.string(), "--arch", "sm_90a", "--cache-dir",
                 cache().string(), flag})
        .out;
  };
  EXPECT_NE(one("--dry-run").find("\n1 kernel: 0 cached, 1 missing"), std::string::npos);
  EXPECT_NE(one("--jobs=1").find("one: 1 kernel: 0 hits, 1 compiled"), std::string::npos);
  EXPECT_NE(one("--jobs=1").find("one: 1 kernel: 1 hit, 0 compiled"), std::string::npos);
}

// Compiling them all is for the NVRTC matrix.
TEST_F(Prewarm, AShippedModelHasItsKernelsForTheParametersThatAreGiven) {
  const auto planned = [&](const char* tp) {
    const auto report = object_of(kiln({"prewarm", "--model", "deepseek-v4.1-flash", "--tp", tp,
                                        "--arch", "sm_90a", "--dry-run", "--json"}));
    EXPECT_EQ(report["model"], "deepseek-v4.1-flash");
    std::map<std::string, int> kernels;
    for (const auto& kernel : report["kernels"]) ++kernels[kernel["kernel"]];
    return kernels;
  };
  using Kernels = std::map<std::string, int>;
  EXPECT_EQ(planned("8"), (Kernels{{"dsv41_kv_insert", 3}, {"dsv41_mega_decode", 3}}));
  EXPECT_EQ(
      planned("4"),
      (Kernels{{"dsv41_kv_insert", 3}, {"dsv41_mega_decode", 3}, {"dsv41_swapab_decode", 2}}));
}

TEST_F(Prewarm, WhatCannotBeStoredIsCompiledCountedAndExits1) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
  std::filesystem::create_directories(cache());  // root's alone to write
  auto wish = request(prewarm_arguments(cache(), {"--json"}));
  wish.user = kNobody;
  if (run_process({.arguments = {KILN_CLI_PATH, "--help"}, .user = kNobody}).exit_code == 127)
    GTEST_SKIP() << "another user cannot reach " << KILN_CLI_PATH;
  const auto json = run_process(wish);
  EXPECT_EQ(json.exit_code, 1) << json.err;
  const auto report = report_of(json);
  EXPECT_EQ(report["compiled"], 3);
  EXPECT_EQ(report["not_stored"], 3);
  for (const auto& kernel : report["kernels"]) EXPECT_EQ(kernel["stored"], false);
  wish = request(prewarm_arguments(cache()));
  wish.user = kNobody;
  const auto text = run_process(wish);
  EXPECT_NE(text.err.find("3 of 3 compiled kernels could not be stored"), std::string::npos)
      << text.err;
}

TEST_F(Prewarm, AFailedCompileShowsTheMessageThenTheWholeLog) {
  // A kernel that does not compile, by way of the source directory.
  const auto source = directory_ / "tree/kernel_src/dsv41_kv_insert/kernel.cu";
  std::filesystem::create_directories(source.parent_path());
  std::string text = "#include \"jit/key.cuh\"\nextern \"C\" __global__ void entry() {\n";
  for (int i = 0; i < 300; ++i) text += "  int unused_" + std::to_string(i) + ";\n";
  write_file(source, text + "  int x = the_fatal_name;\n}\n");
  environment_["KILN_SOURCE_DIR"] = (directory_ / "tree").string();
  const auto result = prewarm({"--json"});
  EXPECT_EQ(result.exit_code, 1);
  const auto report = report_of(result);
  EXPECT_EQ(report["failed"], 3);
  const auto& error = report["kernels"][0]["error"];
  EXPECT_EQ(error["code"], "compile_failed");
  EXPECT_NE(error["message"].get<std::string>().find("the_fatal_name"), std::string::npos)
      << error["message"];
  EXPECT_NE(error["detail"].get<std::string>().find("unused_299"), std::string::npos);
  EXPECT_EQ(result.err.rfind("kiln: ", 0), 0u) << result.err.substr(0, 400);
  EXPECT_NE(result.err.find("unused_299"), std::string::npos);
  EXPECT_LT(result.err.find("the_fatal_name"), result.err.find("unused_0"));
}

TEST_F(Prewarm, AUserManifestNamesWhatIsCompiled) {
  write_file(directory_ / "m.json", R"({
    "schema": 1, "model": "mine",
    "kernels": [{"kernel": "dsv41_kv_insert",
                 "key": {"heads": 0, "record": "fp8", "page_slots": 64, "ratio": 1}}]})");
  const auto manifest = (directory_ / "m.json").string();
  const auto report = report_of(kiln({"prewarm", "--manifest", manifest, "--arch", "sm_90a",
                                      "--cache-dir", cache().string(), "--json"}));
  EXPECT_EQ(report["model"], "mine");
  EXPECT_EQ(report["compiled"], 1);
  const auto wrong = kiln({"prewarm", "--manifest", manifest, "--tp", "4", "--arch", "sm_90a"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("no parameter tp"), std::string::npos) << wrong.err;
}

TEST_F(Prewarm, ParametersOfAUserManifestAreSet) {
  write_file(directory_ / "m.json", R"({
    "schema": 1, "model": "mine", "parameters": {"slots": {"values": [64, 128]}},
    "kernels": [{"kernel": "dsv41_kv_insert", "key": {"heads": 0, "record": "fp8",
                 "page_slots": {"parameter": "slots"}, "ratio": 1}}]})");
  const auto prewarm = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "prewarm",        "--manifest", (directory_ / "m.json").string(),
        "--arch",         "sm_90a",     "--cache-dir",
        cache().string(), "--dry-run",  "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kiln(arguments);
  };
  const auto unset = prewarm({});
  EXPECT_EQ(unset.exit_code, 2);
  EXPECT_NE(unset.err.find("give one of 64, 128"), std::string::npos) << unset.err;
  const auto set = object_of(prewarm({"--set", "slots=128"}));
  EXPECT_EQ(set["parameters"]["slots"], "128");
  EXPECT_NE(set["kernels"][0]["key"],
            object_of(prewarm({"--set", "slots=64"}))["kernels"][0]["key"]);
}

TEST_F(Prewarm, KernelsOfOneNameAreToldApart) {
  const auto lines = prewarm().out + prewarm({"--dry-run"}).out;
  for (const std::string constants : {"  heads=8 record=0 page_slots=128 ratio=1\n",
                                      "  heads=0 record=1 page_slots=128 ratio=1\n"})
    EXPECT_NE(lines.find(constants), std::string::npos) << constants << lines;
}

}  // namespace
}  // namespace kiln::test
