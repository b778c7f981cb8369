// An output that is one of the command's own inputs, by whatever name.
#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class OutputFiles : public CliTest {
 protected:
  void SetUp() override {
    environment_["KILN_CACHE_DIR"] = cache().string();
    std::filesystem::create_directories(cache());
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  /// `arguments` must be refused for an output that is also `input`, with both names told.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& output,
                      const std::string& input) const {
    const auto kept = read_file(input);
    const auto result = kiln(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(read_file(input), kept) << arguments.front();
    for (const auto& part : {output + " is the same file as", " " + input + ","})
      EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
  }
};

TEST_F(OutputFiles, NeverTakeThePlaceOfWhatIsRead) {
  const auto source = path("k.cu"), key = path("my.key"), manifest = path("kernels.json"),
             recording = path("run.json"), other = path("other name");
  write_file(source, "extern \"C\" __global__ void entry(int* x) { *x = 1; }\n");
  ASSERT_EQ(kiln({"keygen", key}).exit_code, 0);
  std::filesystem::copy_file(kManifest, manifest);
  write_file(recording, R"({"kind": "x"})");
  const auto prewarm = [&](const std::string& option, const std::string& file) {
    return std::vector<std::string>{"prewarm", "--manifest", manifest,       "--arch", "sm_90a",
                                    option,    file,         "--secret-key", key};
  };
  using Make = void (*)(const std::filesystem::path&, const std::filesystem::path&);
  const Make makes[] = {
      [](const auto&, const auto&) {},
      [](const auto& to, const auto& link) { std::filesystem::create_symlink(to, link); },
      [](const auto& to, const auto& link) { std::filesystem::create_hard_link(to, link); }};
  for (const auto make : makes) {
    const auto named = [&](const std::string& input) {
      std::filesystem::remove(other);
      make(input, other);
      return std::filesystem::exists(other) ? other : input;
    };
    auto output = named(source);
    expect_refused({"compile", source, "--arch", "sm_90a", "-o", output}, output, source);
    output = named(key);
    expect_refused({"bundle", "pack", output, "--secret-key", key}, output, key);
    expect_refused(prewarm("--trace", output), output, key);
    output = named(manifest);
    expect_refused(prewarm("--html", output), output, manifest);
    output = named(recording);
    expect_refused({"manifest", "merge", recording, "-o", output}, output, recording);
  }
  environment_["KILN_REMOTE_KEY"] = key;
  expect_refused({"compile", source, "--arch", "sm_90a", "-o", key}, key, key);
  // Two reports in one file.
  const auto page = path("page");
  write_file(page, "kept");
  std::filesystem::create_symlink(page, path("link"));
  auto arguments = prewarm("--trace", page);
  arguments.insert(arguments.end(), {"--html", path("link")});
  expect_refused(arguments, path("link"), page);
}

}  // namespace
}  // namespace kiln::test
