// kiln explain and kiln cache diff: why a kernel is not in a cache, in words and as JSON.
#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class ExplainVerb : public CliTest {
 protected:
  void SetUp() override {
    KILN_REQUIRES_NVRTC();
    write_file(directory_ / "scale.cu",
               "#include \"jit/key.cuh\"\n#include \"factor.cuh\"\n"
               "extern \"C\" __global__ void entry(float* x) { *x *= FACTOR * key::tile; }\n");
    write_file(directory_ / "factor.cuh", "#define FACTOR 2\n");
    const auto compiled = verb("compile", {"--key", "tile=128"});
    ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  }

  ProcessResult verb(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {name,          (directory_ / "scale.cu").string(),
                                          "--arch",      "sm_90a",
                                          "--cache-dir", cache().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kiln(arguments);
  }
};

TEST_F(ExplainVerb, NamesEachFieldThatDiffersFromTheNearestEntry) {
  const auto found = verb("explain", {"--key", "tile=128"});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_NE(found.out.find("  in the cache\n"), std::string::npos) << found.out;

  write_file(directory_ / "factor.cuh", "#define FACTOR 3\n");
  const auto absent = verb("explain", {"--key", "tile=64", "--option=-use_fast_math"});
  EXPECT_EQ(absent.exit_code, 0) << absent.err;
  for (const char* line : {"\n  constant tile: i32 64 in the request, i32 128 in the entry\n",
                           "\n  source factor.cuh: content ",
                           "\n  option --use_fast_math: given in the request alone\n"})
    EXPECT_NE(absent.out.find(line), std::string::npos) << line << absent.out;
  const auto kernel = object_of(verb("explain", {"--key", "tile=64", "--json"}))["kernels"].at(0);
  EXPECT_EQ(kernel["verdict"], "absent");
  ASSERT_EQ(kernel["nearest"]["differences"].size(), 2u);
  EXPECT_EQ(
      kernel["nearest"]["differences"][0],
      (nlohmann::json{
          {"aspect", "constant"}, {"name", "tile"}, {"first", "i32 64"}, {"second", "i32 128"}}));

  // Between two entries.
  ASSERT_EQ(verb("compile", {"--key", "tile=64"}).exit_code, 0);
  const auto listed = object_of(kiln({"cache", "ls", "--json", "--cache-dir", cache().string()}));
  const std::string first = listed["entries"][0]["key"];
  const std::string second = listed["entries"][1]["key"];
  const auto diff = kiln(
      {"cache", "diff", first.substr(0, 9), second, "--json", "--cache-dir", cache().string()});
  ASSERT_EQ(diff.exit_code, 0) << diff.err;
  EXPECT_EQ(object_of(diff)["differences"].size(), 2u);
  EXPECT_EQ(object_of(diff)["first"], first);
  const auto same = kiln({"cache", "diff", first, first, "--cache-dir", cache().string()});
  EXPECT_EQ(same.out, "the same key\n");
}

// As with an image, whose cache lies below an empty one.
TEST_F(ExplainVerb, LooksIntoReadOnlyCachesToo) {
  const auto layer = directory_ / "layer";
  std::filesystem::rename(cache(), layer);
  environment_["KILN_CACHE_READONLY"] = layer.string();
  const auto absent = verb("explain", {"--key", "tile=64"});
  EXPECT_EQ(absent.exit_code, 0) << absent.err;
  EXPECT_NE(absent.out.find("the nearest of 1 entry is "), std::string::npos) << absent.out;
  EXPECT_NE(absent.out.find("  constant tile: i32 64 in the request, i32 128 in the entry\n"),
            std::string::npos)
      << absent.out;
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

TEST_F(ExplainVerb, NamesTheCheckThatRefusedTheEntryAndMendsNothing) {
  const auto file = entries().front();
  auto bytes = read_file(file);
  bytes.resize(bytes.size() - 1);
  write_file(file, bytes);
  const auto refused = verb("explain", {"--key", "tile=128"});
  EXPECT_EQ(refused.exit_code, 0) << refused.err;
  EXPECT_NE(refused.out.find("refused: cut short"), std::string::npos) << refused.out;
  EXPECT_EQ(read_file(file), bytes);
}

TEST_F(ExplainVerb, TakesAManifestAndTellsThatNoEntryIsOfItsKernels) {
  const std::vector<std::string> arguments = {
      "explain", "--model", "deepseek-v4.1-flash", "--tp",          "8", "--kv", "nvfp4",
      "--arch",  "sm_90a",  "--cache-dir",         cache().string()};
  const auto result = kiln(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("no entry is of this kernel"), std::string::npos) << result.out;
  auto as_json = arguments;
  as_json.emplace_back("--json");
  EXPECT_GE(object_of(kiln(as_json))["kernels"].size(), 3u);
}

TEST_F(ExplainVerb, AsksForAToolchainWhereNoKeyCanBeMade) {
  environment_["KILN_NVRTC"] = "/no/such/nvrtc";
  // The cache knows which compiler filled it.
  EXPECT_NE(verb("explain", {"--key", "tile=128"}).out.find("in the cache\n"), std::string::npos);
  const auto nothing = kiln({"explain", (directory_ / "scale.cu").string(), "--key", "tile=1",
                             "--arch", "sm_90a", "--cache-dir", (directory_ / "none").string()});
  EXPECT_EQ(nothing.exit_code, 3) << nothing.out;
}

}  // namespace
}  // namespace kiln::test
