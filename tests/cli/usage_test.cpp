// The command line itself: exit codes, help, versions, the form of errors.
#include <unistd.h>

#include <string_view>

#include "cli_fixture.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::test {
namespace {

class Usage : public CliTest {};

const std::string kModel = "deepseek-v4.1-flash";

TEST_F(Usage, EachFaultOfTheCommandLineExitsWith2AndSaysWhatIsWrong) {
  const struct {
    std::vector<std::string> arguments;
    std::string_view said;
  } faults[] = {
      {{},
       "a verb is missing; the verbs of kiln are cache, bundle, prewarm, compile, explain, bench, "
       "plan, doctor, keygen, completion, push, pull, remote, manifest; see "
       "kiln --help"},
      {{"prewram"}, "\"prewram\" is unknown; the verbs of kiln are cache, bundle, prewarm"},
      {{"prewram", "--model", kModel}, "\"prewram\" is unknown"},
      {{"cache"}, "a verb is missing; the verbs of kiln cache are ls, show, extract, verify"},
      {{"cache", "lst"},
       "\"lst\" is unknown; the verbs of kiln cache are ls, show, extract, verify"},
      {{"cache", "ls", "--json=false"}, "--json"},
      {{"cache", "ls", "--json=1"}, "--json"},
      {{"prewarm"}, "--model"},
      {{"prewarm", "--model"}, "--model"},
      {{"prewarm", "--frobnicate"}, "--frobnicate"},
      {{"prewarm", "--model", "gpt-5", "--arch", "sm_90a"}, kModel},
      {{"prewarm", "--model", kModel, "--manifest", "x.json"}, "--manifest"},
      {{"prewarm", "--manifest", "/no/such.json", "--arch", "sm_90a"}, "/no/such.json"},
      {{"prewarm", "--manifest", "/", "--arch", "sm_90a"}, "not a file"},
      {{"prewarm", "--model", kModel, "--tp", "3", "--arch", "sm_90a"}, "1, 2, 4, 8"},
      {{"prewarm", "--model", kModel, "--kv", "fp7", "--arch", "sm_90a"}, "fp8, nvfp4"},
      {{"prewarm", "--model", kModel, "--set", "tp", "--arch", "sm_90a"}, "write NAME=VALUE"},
      {{"prewarm", "--model", kModel, "--set", "tp=", "--arch", "sm_90a"}, "write NAME=VALUE"},
      {{"prewarm", "--model", kModel, "--set", "tp=4", "--tp", "2", "--arch", "sm_90a"},
       "tp is set to "},
      {{"prewarm", "--model", kModel, "--set", "block=4", "--arch", "sm_90a"}, "known: kv, tp"},
      {{"prewarm", "--model", kModel, "--arch", "90"}, "90"},
      {{"prewarm", "--model", kModel, "--arch", "compute_90"}, "write sm_90a"},
      {{"prewarm", "--model", kModel, "--arch", "sm_90a,,sm_100a"}, "empty"},
      {{"prewarm", "--model", kModel, "--arch", ""}, "empty"},
      {{"prewarm", "--model", kModel, "--arch", "90", "--dry-run"}, "90"},
      {{"prewarm", "--model", kModel, "--arch", "sm_90a", "-j", "many"}, "--jobs"},
      {{"prewarm", "--model", kModel, "--arch", "sm_90a", "-j", "-1"}, "--jobs"},
      {{"prewarm", "--model", kModel, "--arch", "sm_90a", "--cache-dir", ""}, "--cache-dir"},
      {{"prewarm", "--model", kModel, "--arch", "sm_90a", "--html", ""}, "the name is empty"},
      {{"compile", ""}, "FILE: the name is empty"},
      {{"compile", "x.cu", "-o", ""}, "--output: the name is empty"},
      {{"prewarm", "--model", kModel, "--arch", "sm_90a", "stray"}, "stray"},
      {{"cache", "show"}, "KEY"},
      {{"cache", "show", "xyz"}, "hexadecimal"},
      {{"cache", "show", std::string(33, 'a')}, "32"},
      {{"cache", "ls", "--arch", "sm_90a"}, "--arch"},
      {{"cache", "trim", "--max-bytes", ""}, "no number of bytes"},
      {{"cache", "trim", "--older-than", ""}, "no span of time"},
      {{"cache", "trim", "--max-bytes=-1"}, "no number of bytes"},
      {{"cache", "extract", "5f3a"}, "--cubin, --source and --log"},
      {{"cache", "extract", "5f3a", "--log", "--source"}, "one of"},
      {{"bundle"}, "a verb is missing; the verbs of kiln bundle are pack, unpack, ls, verify"},
      {{"bundle", "pack", "x.kiln"}, "--secret-key"},
      {{"bundle", "pack", "x.kiln", "--unsigned", "--secret-key", "k"}, "--unsigned"},
      {{"bundle", "pack"}, "FILE"},
      {{"bundle", "verify", "x.kiln"}, "--signer"},
      {{"bundle", "unpack", "x.kiln"}, "--signer"},
      {{"bundle", "verify", "x.kiln", "--signer", "ed25519:12"}, "64 lower-case"},
      {{"bundle", "verify", "x.kiln", "--signer", "k", "--any-signer"}, "--any-signer"},
      {{"keygen"}, "FILE"},
      {{"explain"}, "--manifest"},
      {{"explain", "x.cu", "--model", kModel}, "--manifest"},
      {{"explain", "--model", kModel, "--entry", "f"}, "a manifest says them itself"},
      {{"explain", "x.cu", "--tp", "4"}, "--tp and --kv go with"},
      {{"explain", "x.cu", "--set", "tp=4"}, "--set, --tp and --kv go with"},
      {{"cache", "diff", "5f3a"}, "SECOND"},
      {{"compile"}, "FILE"},
      {{"completion", "csh"}, "fish"},
      {{"doctor", "-j", "many"}, "--jobs"},
      {{"doctor", "-j", "010"}, "--jobs"},
      {{"doctor", "--arch", "sm_90a,"}, "empty"},
  };
  for (const auto& fault : faults) {
    std::string line;
    for (const auto& argument : fault.arguments) line += " " + argument;
    const auto plain = kiln(fault.arguments);
    EXPECT_EQ(plain.exit_code, 2) << line << "\n" << plain.err;
    EXPECT_EQ(plain.out, "") << line;
    EXPECT_NE(plain.err.find(fault.said), std::string::npos) << line << "\n" << plain.err;

    auto arguments = fault.arguments;
    arguments.insert(arguments.begin(), "--json");
    const auto json = kiln(arguments);
    EXPECT_EQ(json.exit_code, 2) << line;
    const auto error = object_of(json);
    ASSERT_TRUE(error.contains("error")) << line << "\n" << json.out;
    EXPECT_TRUE(error["error"]["code"].is_string()) << line;
    EXPECT_NE(error["error"]["message"].get<std::string>().find(fault.said), std::string::npos)
        << line << "\n"
        << json.out;
  }
}

TEST_F(Usage, HelpOfEachVerbHasExamples) {
  const std::vector<std::vector<std::string>> verbs = {{},
                                                       {"prewarm"},
                                                       {"compile"},
                                                       {"bench"},
                                                       {"plan"},
                                                       {"doctor"},
                                                       {"explain"},
                                                       {"keygen"},
                                                       {"cache", "diff"},
                                                       {"bundle", "pack"},
                                                       {"bundle", "unpack"},
                                                       {"bundle", "ls"},
                                                       {"bundle", "verify"},
                                                       {"push"},
                                                       {"pull"},
                                                       {"remote", "check"},
                                                       {"completion"},
                                                       {"cache", "ls"},
                                                       {"cache", "show"},
                                                       {"cache", "extract"},
                                                       {"cache", "verify"}};
  for (auto arguments : verbs) {
    arguments.emplace_back("--help");
    const auto help = kiln(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("Examples:\n  kiln "), std::string::npos) << help.out;
    EXPECT_EQ(help.err, "");
  }
  EXPECT_TRUE(object_of(kiln({"prewarm", "--help", "--json"})).contains("help"));
}

TEST_F(Usage, VersionNamesKilnAndNvrtcAndDriver) {
  const auto version = kiln({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("kiln ", 0), 0u) << version.out;
  EXPECT_NE(version.out.find("\nNVRTC "), std::string::npos) << version.out;
  EXPECT_NE(version.out.find("\ndriver "), std::string::npos) << version.out;
  environment_["KILN_NVRTC"] = "/no/such/nvrtc";
  EXPECT_NE(kiln({"--version"}).out.find("\nNVRTC not found"), std::string::npos);
  EXPECT_TRUE(object_of(kiln({"--version", "--json"}))["nvrtc"].is_null());
}

TEST_F(Usage, VersionMindsNoVariableThatIsNotItsOwn) {
  environment_["KILN_JOBS"] = "many";
  environment_["KILN_ARCH"] = "sm_90a,,";
  const auto version = kiln({"--version"});
  EXPECT_EQ(version.exit_code, 0) << version.err;
  EXPECT_EQ(version.out.rfind("kiln ", 0), 0u) << version.out;
}

TEST_F(Usage, ADryRunThatCanMakeNoKeyExitsWith3AsItsHelpSays) {
  environment_["KILN_NVRTC"] = "/no/such/nvrtc";
  const auto result = prewarm({"--dry-run"});
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  const auto help = kiln({"prewarm", "--help"}).out;
  EXPECT_NE(help.find("3 when it can make no key"), std::string::npos) << help;
}

TEST_F(Usage, JsonMayStandAnywhere) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--json", "cache", "ls"},
        {"cache", "--json", "ls"},
        {"cache", "ls", "--json=true"},
        {"cache", "ls", "--json"}}) {
    const auto listed = kiln(arguments);
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_EQ(object_of(listed)["entries"].size(), 0u);
  }
}

TEST_F(Usage, WithoutAnArchitectureAndADeviceNothingIsGuessed) {
  // Hides the devices of a machine that has some.
  environment_["CUDA_VISIBLE_DEVICES"] = "";
  const auto result = kiln({"prewarm", "--model", kModel, "--cache-dir", cache().string()});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("--arch"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

// T19: the stub library of the CUDA toolkit is no driver, whatever it is called.
TEST_F(Usage, TheToolkitsStubDriverCountsAsNone) {
  const char* home = std::getenv("CUDA_HOME");
  const auto stub =
      std::filesystem::path(home != nullptr ? home : "/usr/local/cuda") / "lib64/stubs/libcuda.so";
  if (!std::filesystem::exists(stub)) GTEST_SKIP() << stub << " is not there";
  std::filesystem::create_directories(directory_ / "stubs");
  std::filesystem::create_symlink(stub, directory_ / "stubs" / "libcuda.so.1");
  environment_["LD_LIBRARY_PATH"] = (directory_ / "stubs").string();
  const auto unnamed =
      kiln({"prewarm", "--model", "deepseek-v4.1-flash", "--cache-dir", cache().string()});
  EXPECT_EQ(unnamed.exit_code, 2) << unnamed.err;
  EXPECT_NE(unnamed.err.find("--arch"), std::string::npos) << unnamed.err;
  const auto version = kiln({"--version"});
  EXPECT_EQ(version.exit_code, 0) << version.err;
  EXPECT_NE(version.out.find("driver not found"), std::string::npos) << version.out;
}

TEST_F(Usage, ABadVariableIsAUsageErrorUnlessAnOptionGoesBeforeIt) {
  KILN_REQUIRES_NVRTC();
  environment_["KILN_JOBS"] = "many";
  const auto bad = prewarm();
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("KILN_JOBS"), std::string::npos) << bad.err;
  EXPECT_EQ(prewarm({"-j", "2"}).exit_code, 0);
}

TEST_F(Usage, NoCacheDirectoryAnywhereIsTheEnvironmentsFault) {
  environment_.erase("HOME");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"cache", "ls"},
        {"cache", "verify"},
        {"prewarm", "--model", kModel, "--arch", "sm_90a"}}) {
    const auto result = kiln(arguments);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_NE(result.err.find("KILN_CACHE_DIR"), std::string::npos) << result.err;
  }
}

TEST_F(Usage, ACacheDirectoryThatSomebodyNamesMustBeThereToBeRead) {
  EXPECT_EQ(kiln({"cache", "ls"}).exit_code, 0);
  const auto missing = kiln({"cache", "verify", "--cache-dir", cache().string()});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_NE(missing.err.find("does not exist"), std::string::npos) << missing.err;
  write_file(directory_ / "file", "");
  environment_["KILN_CACHE_DIR"] = (directory_ / "file").string();
  EXPECT_NE(kiln({"cache", "ls"}).err.find("not a directory"), std::string::npos);
}

TEST_F(Usage, ACacheThatCannotBeReadIsNoEmptyOne) {
  std::filesystem::create_directories(cache() / "v1");
  write_file(cache() / "v1/e", "");
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"ls"}, {"verify"}, {"show", "5f3a"}}) {
    std::vector<std::string> arguments = {"cache", "--json", "--cache-dir", cache().string()};
    arguments.insert(arguments.begin() + 1, verb.begin(), verb.end());
    const auto result = kiln(arguments);
    EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
    EXPECT_EQ(object_of(result)["error"]["code"], "io_failed");
    EXPECT_NE(result.err.find((cache() / "v1/e").string()), std::string::npos) << result.err;
  }
}

TEST_F(Usage, AnotherUsersPrivateCacheIsNoEmptyOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
  if (run_process({.arguments = {KILN_CLI_PATH, "--help"}, .user = kNobody}).exit_code == 127)
    GTEST_SKIP() << "another user cannot reach " << KILN_CLI_PATH;
  std::filesystem::create_directories(cache());
  std::filesystem::permissions(cache(), std::filesystem::perms::owner_all);
  for (const char* verb : {"ls", "verify"}) {
    auto wish = request({"cache", verb, "--cache-dir", cache().string()});
    wish.user = kNobody;
    const auto result = run_process(wish);
    EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
    EXPECT_NE(result.err.find("Permission denied"), std::string::npos) << result.err;
  }
}

TEST_F(Usage, VerifyLooksAtTheRecordsToo) {
  const auto record = cache() / "v1/r/toolchain" / std::string(32, '0');
  std::filesystem::create_directories(record.parent_path());
  const std::vector<std::string> verify = {"cache", "verify", "--json", "--cache-dir",
                                           cache().string()};
  EXPECT_EQ(kiln(verify).exit_code, 0) << "a missing record is no damage";
  write_file(record, "damaged");
  const auto result = kiln(verify);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto object = object_of(result);
  EXPECT_EQ(object["checked"], 0);
  EXPECT_EQ(object["records"], 1);
  ASSERT_EQ(object["damaged"].size(), 1u);
  EXPECT_EQ(object["damaged"][0]["record"], "toolchain");
}

TEST_F(Usage, AClosedStandardOutputIsAFailure) {
  auto wish = request({});
  wish.arguments = {
      "/bin/sh", "-c",
      "'" + wish.arguments.front() + "' doctor --cache-dir '" + cache().string() + "' >&-"};
  const auto result = run_process(wish);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_NE(result.err.find("standard output"), std::string::npos) << result.err;
}

TEST_F(Usage, FactsOfBracketsWithoutEndAreNotShown) {
  auto store = cache::Store::open({.directory = cache()});
  ASSERT_TRUE(store);
  const std::string key = "deep";
  const std::string deep(300000, '[');
  ASSERT_TRUE(
      store
          ->publish(key, "{\"kernel\": \"k\", \"deep\": " + deep + std::string(300000, ']') + "}",
                    {})
          .ok());
  const auto name = cache::digest_of(key).hex();
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--json"}}) {
    std::vector<std::string> arguments = {"cache", "show", name, "--cache-dir", cache().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto shown = kiln(arguments);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_NE(shown.out.find("kernel"), std::string::npos);
    EXPECT_EQ(shown.out.find("[[[[[[[["), std::string::npos);
  }
}

TEST_F(Usage, LsLeavesOutWhatIsDeletedWhileItLists) {
  // Damaged entries fill the pipe, so that ls waits in the middle; the last, good to the eye of the
  // check, is gone when it gets there.
  const auto shard = cache() / "v1/e/00";
  std::filesystem::create_directories(shard);
  for (int i = 0; i < 2000; ++i) {
    const auto digits = std::to_string(i);
    write_file(shard / (std::string(30 - digits.size(), '0') + digits), "damaged");
  }
  auto store = cache::Store::open({.directory = cache()});
  ASSERT_TRUE(store);
  std::string key;
  for (int i = 0; key.empty() || cache::digest_of(key).hex() < "01"; ++i)
    key = "k=" + std::to_string(i);
  ASSERT_TRUE(store->publish(key, "{}", {}).ok());
  const auto name = cache::digest_of(key).hex();
  const auto file = cache() / "v1/e" / name.substr(0, 2) / name.substr(2);
  auto wish = request({});
  wish.arguments = {"/bin/bash", "-c",
                    "'" + wish.arguments.front() + "' cache ls --cache-dir '" + cache().string() +
                        "' | { read -r line; sleep 0.2; rm -f '" + file.string() + "'; cat; }"};
  const auto result = run_process(wish);
  EXPECT_NE(result.out.find("2000 entries"), std::string::npos) << result.err;
  EXPECT_EQ(result.out.find(name), std::string::npos);
}

}  // namespace
}  // namespace kiln::test
