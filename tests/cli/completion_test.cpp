// kiln completion: the scripts, run by the shells that they are for.
#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class Completion : public CliTest {
 protected:
  void SetUp() override {
    for (const char* shell : {"bash", "zsh", "fish"}) {
      const auto script = kiln({"completion", shell});
      ASSERT_EQ(script.exit_code, 0) << script.err;
      write_file(directory_ / shell, script.out);
    }
    std::filesystem::create_directories(directory_ / "files/folder");
    write_file(directory_ / "files/scale.cu", "");
  }

  static bool has(const char* shell) {
    return std::filesystem::exists("/usr/bin/" + std::string(shell));
  }
  /// What `script` prints, run by `shell` in a folder with files.
  std::string run(const char* shell, const std::string& script) const {
    ProcessRequest wish{.arguments = {"/usr/bin/" + std::string(shell), "-c", script},
                        .environment = environment_,
                        .directory = (directory_ / "files").string()};
    const auto result = run_process(wish);
    EXPECT_EQ(result.err, "") << script;
    return result.out;
  }
  /// The offers of bash for the last of `words`, with blanks between them.
  std::string bash(const std::string& words) const {
    return run("bash",
               "source '" + (directory_ / "bash").string() +
                   "'; compopt() { :; }; complete -p kiln >/dev/null || exit\nCOMP_WORDS=(kiln " +
                   words +
                   "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _kiln; "
                   "echo -n \"${COMPREPLY[*]}\"");
  }
};

TEST_F(Completion, BashOffersVerbsOptionsValuesAndFiles) {
  if (!has("bash")) GTEST_SKIP() << "no bash here";
  EXPECT_EQ(bash("do"), "doctor");
  EXPECT_EQ(bash("cache ''").rfind("ls show extract verify", 0), 0u) << bash("cache ''");
  EXPECT_EQ(bash("--json cache ext"), "extract");
  EXPECT_EQ(bash("prewarm --dr"), "--dry-run");
  EXPECT_EQ(bash("prewarm --model ''"), "deepseek-v4.1-flash kimi-k3");
  EXPECT_EQ(bash("prewarm --model = deep"), "deepseek-v4.1-flash");
  EXPECT_EQ(bash("prewarm --kv ="), "nvfp4 fp8");
  EXPECT_EQ(bash("prewarm --tp ''"), "");
  EXPECT_EQ(bash("compile s"), "scale.cu");
  EXPECT_EQ(bash("plan k"), "kimi_k3_mla");
  EXPECT_EQ(bash("plan kimi_k3_mla --constants h"), "h200");
  EXPECT_EQ(bash("doctor --cache-dir ''"), "folder");
  EXPECT_EQ(bash("completion z"), "zsh");
  // Every option of a verb's help is offered.
  EXPECT_NE(bash("compile --").find("--name-expression"), std::string::npos);
}

TEST_F(Completion, ZshOffersTheSame) {
  if (!has("zsh")) GTEST_SKIP() << "no zsh here";
  const auto offers = [&](const std::string& words) {
    return run("zsh",
               "compdef() { :; }; source '" + (directory_ / "zsh").string() +
                   "'\ncompadd() { shift; print -n -r -- $*; }\n_files() { print -n files; }\n"
                   "compset() { :; }\nwords=(kiln " +
                   words + "); CURRENT=${#words}; _kiln");
  };
  EXPECT_EQ(offers("cache ''").rfind("ls show extract verify", 0), 0u) << offers("cache ''");
  EXPECT_EQ(offers("prewarm --kv ''"), "nvfp4 fp8");
  EXPECT_EQ(offers("prewarm --kv=n"), "nvfp4 fp8");
  EXPECT_EQ(offers("compile ''"), "files");
}

TEST_F(Completion, FishOffersTheSame) {
  if (!has("fish")) GTEST_SKIP() << "no fish here";
  const auto offers = [&](const std::string& line) {
    return run("fish",
               "source '" + (directory_ / "fish").string() + "'; complete -C '" + line + "'");
  };
  EXPECT_EQ(offers("kiln doct"), "doctor\tShow what is in force here, and what is wrong\n");
  EXPECT_NE(offers("kiln cache ").find("extract\t"), std::string::npos);
  EXPECT_EQ(offers("kiln prewarm --model deep"),
            "deepseek-v4.1-flash\tA model that Kiln knows: deepseek-v4.1-flash, kimi-k3\n");
  EXPECT_EQ(offers("kiln compile s"), "scale.cu\n");
}

}  // namespace
}  // namespace kiln::test
