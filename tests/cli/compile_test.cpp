// kiln compile: one source into the cache, and kiln cache extract, which takes it out again.
#include <sys/stat.h>

#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class Compile : public CliTest {
 protected:
  void SetUp() override {
    KILN_REQUIRES_NVRTC();
    std::filesystem::create_directories(work());
    environment_["KILN_CACHE_DIR"] = cache().string();
  }

  std::filesystem::path work() const { return directory_ / "work"; }
  void write(const std::string& name, std::string_view text) const {
    write_file(work() / name, text);
  }
  /// kiln compile in work(), for sm_90a.
  ProcessResult compile(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"compile", "--arch", "sm_90a"});
    auto wish = request(std::move(arguments));
    wish.directory = work().string();
    return run_process(wish);
  }
  /// The one target of a compile that must end well.
  nlohmann::json target(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const auto result = compile(std::move(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto object = object_of(result);
    return object.contains("targets") ? object["targets"][0] : nlohmann::json::object();
  }
};

TEST_F(Compile, ASecondRunHitsUnderTheSameKeyHoweverTheFileIsNamed) {
  write(
      "scale.cu",
      "extern \"C\" __global__ void scale(float* x) { __shared__ float s[64]; s[threadIdx.x] = *x; "
      "__syncthreads(); *x = s[63 - threadIdx.x]; }\n");
  const auto cold = target({"scale.cu"});
  EXPECT_EQ(cold["origin"], "compiled");
  EXPECT_EQ(cold["symbol"], "scale");
  EXPECT_EQ(cold["static_shared_bytes"], 256);
  EXPECT_GT(cold["registers"].get<int>(), 0);
  EXPECT_EQ(cold["stored"], true);
  for (const auto& name : {std::string("./scale.cu"), (work() / "scale.cu").string()}) {
    const auto warm = target({name});
    EXPECT_EQ(warm["origin"], "disk");
    EXPECT_EQ(warm["key"], cold["key"]);
    EXPECT_EQ(warm["static_shared_bytes"], 256);
  }
  for (const auto* verb : {"verify", "ls", "clear"}) {
    const auto one = kiln({"cache", verb});
    EXPECT_NE(one.out.find("1 entry, "), std::string::npos) << one.out << one.err;
  }
}

// File systems in user space and on a network let a signal interrupt a look at a file, and fail.
TEST_F(Compile, ALookAtAHeaderThatIsInterruptedCostsNothingAndOneThatFailsIsNoAbsence) {
  write("near.h", "#define FACTOR 3\n");
  write("scale.cu",
        "#if __has_include(<near.h>)\n#include <near.h>\n#else\n#define FACTOR 9\n#endif\n"
        "extern \"C\" __global__ void scale(int* x) { *x *= FACTOR; }\n");
  const auto trace = (work() / "trace").string(), header = (work() / "near.h").string();
  for (const std::string error : {"EINTR", "EIO"}) {
    std::vector<std::string> arguments = {"/usr/bin/strace",
                                          "-f",
                                          "-o",
                                          trace,
                                          "-P",
                                          header,
                                          "-e",
                                          "inject=openat,newfstatat:error=" + error + ":when=1"};
    for (const char* more : {KILN_CLI_PATH, "compile", "scale.cu", "--arch", "sm_90a", "-I", "."})
      arguments.emplace_back(more);
    const auto result = run_process(
        {.arguments = arguments, .environment = environment_, .directory = work().string()});
    if (read_file(trace).find("INJECTED") == std::string::npos)
      GTEST_SKIP() << "strace is not installed, or may not trace here";
    EXPECT_EQ(result.exit_code, error == "EIO" ? 1 : 0) << result.err;
    EXPECT_EQ(result.err.find("near.h\": Input/output error") != std::string::npos, error == "EIO")
        << result.err;
  }
}

TEST_F(Compile, TheOnlyKernelIsMeantAndSeveralAreNot) {
  write("one.cu",
        "// __global__ void comment(int*);\nnamespace n { __global__ void __launch_bounds__(64)\n"
        "k(int* x) { *x = 1; } }\n");
  EXPECT_EQ(target({"one.cu"})["symbol"], "_ZN1n1kEPi");
  write("both.cu",
        "extern \"C\" __global__ void other(int* x) { *x = 1; }\n"
        "extern \"C\" { __global__ void entry(int* x) { *x = 2; } }\n");
  EXPECT_EQ(target({"both.cu"})["symbol"], "entry");
  EXPECT_EQ(target({"both.cu", "--entry", "other"})["symbol"], "other");

  write("two.cu",
        "extern \"C\" __global__ void a(int* x) { *x = 1; }\n"
        "extern \"C\" __global__ void b(int* x) { *x = 2; }\n");
  const auto two = compile({"two.cu"});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_NE(two.err.find("a, b"), std::string::npos) << two.err;
  write("template.cu", "template <class T> __global__ void t(T* x) { *x = 1; }\n");
  const auto instance = compile({"template.cu"});
  EXPECT_EQ(instance.exit_code, 2);
  EXPECT_NE(instance.err.find("--name-expression"), std::string::npos) << instance.err;
  EXPECT_EQ(target({"template.cu", "--name-expression", "t<float>"})["symbol"], "_Z1tIfEvPT_");
  const auto missing = compile({"two.cu", "--entry", "c"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("it has "), std::string::npos) << missing.err;
}

TEST_F(Compile, KeyMacrosHeadersAndOptionsAreCompiledIn) {
  write("beside.cuh", "#define BESIDE 3\n");
  std::filesystem::create_directories(work() / "inc");
  write("inc/far.cuh", "#define FAR 4\n");
  write("all.cu",
        "#include \"jit/key.cuh\"\n#include \"beside.cuh\"\n#include <far.cuh>\n"
        "#include \"kernel_src/shared/bits.hpp\"\n"
        "static_assert(key::n == -7 && key::big == 5000000000 && key::on);\n"
        "static_assert(BESIDE == 3 && FAR == 4 && STAGES == 5 && PLAIN == 1);\n"
        "static_assert(__cplusplus >= 202002L);\n"
        "extern \"C\" __global__ void entry(float* x) { *x = sinf(*x); }\n");
  const std::vector<std::string> all = {
      "all.cu", "--key",   "n=-7",       "--key", "big=5000000000:u64",
      "--key",  "on=true", "-DSTAGES=5", "-D",    "PLAIN",
      "-I",     "inc",     "--std",      "c++20", "--option=-use_fast_math"};
  EXPECT_EQ(target(all)["stored"], true);
  for (const auto* bad : {"n", "n=", "=1", "n=1:f32", "n=3000000000"}) {
    const auto result = compile({"all.cu", "--key", bad});
    EXPECT_EQ(result.exit_code, 2) << bad << result.err;
    EXPECT_NE(result.err.find('n'), std::string::npos);
  }
  const auto refused = compile({"all.cu", "--option=-Iinc"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("-I DIR"), std::string::npos) << refused.err;
}

TEST_F(Compile, AHeaderBesideTheFileIsReadAnew) {
  write("h.cuh", "#define H 3\n");
  write("k.cu", "#include \"h.cuh\"\nextern \"C\" __global__ void entry(int* x) { *x = H; }\n");
  const auto first = target({"k.cu"});
  write("h.cuh", "#define H 4\n");
  EXPECT_NE(target({"k.cu"})["key"], first["key"]);
}

TEST_F(Compile, ASourceDirectoryGivesTheFileItsNameThere) {
  std::filesystem::create_directories(work() / "tree/kernel_src/shared");
  write("tree/kernel_src/shared/bits.hpp", "#define MINE 9\n");
  write("tree/kernel_src/mine.cu",
        "#include \"kernel_src/shared/bits.hpp\"\nextern \"C\" __global__ void entry(int* x) { *x "
        "= MINE; }\n");
  write("outside.cu",
        "#include \"kernel_src/shared/bits.hpp\"\n#include \"near.cuh\"\n"
        "extern \"C\" __global__ void entry(int* x) { *x = MINE + NEAR; }\n");
  write("near.cuh", "#define NEAR 1\n");
  environment_["KILN_SOURCE_DIR"] = (work() / "tree").string();
  const auto inside = target({"tree/kernel_src/mine.cu"});
  const auto shown = object_of(kiln({"cache", "show", inside["key"].get<std::string>(), "--json"}));
  EXPECT_NE(shown["key_text"].get<std::string>().find(" kernel_src/mine.cu "), std::string::npos);
  EXPECT_EQ(target({"outside.cu"})["stored"], true);
}

TEST_F(Compile, CodeThatHoldsAPlaceOrATimeIsNotStoredAndThatIsNoFailure) {
  write("k.cu", "extern \"C\" __global__ void entry(const char** x) { *x = WHAT; }\n");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"k.cu", "-DWHAT=\"a\"", "--debug"}, {"k.cu", "-DWHAT=__TIME__"}}) {
    const auto made = target(arguments);
    EXPECT_EQ(made["stored"], false);
    EXPECT_FALSE(made["not_stored"].get<std::string>().empty());
    const auto text = compile(arguments);
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_NE(text.out.find("stored         no: "), std::string::npos) << text.out;
  }
  EXPECT_EQ(target({"k.cu", "-DWHAT=\"a\"", "--lineinfo"})["stored"], true);
}

TEST_F(Compile, ACacheThatCannotBeWrittenIsAFailureThatStillTellsWhatWasMade) {
  write("k.cu", "extern \"C\" __global__ void entry(int* x) { *x = 1; }\n");
  std::filesystem::create_directories(cache());
  write_file(cache() / "v1", "");
  const auto result = compile({"k.cu", "--json", "-o", "k.cubin"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(object_of(result)["targets"][0]["stored"], false);
  EXPECT_EQ(read_file(work() / "k.cubin").substr(1, 3), "ELF");
}

TEST_F(Compile, AFailedCompileNamesTheFileAsItWasTyped) {
  write("bad.cu",
        "#include \"worse.cuh\"\nextern \"C\" __global__ void entry(int* x) { *x = 1 }\n");
  write("worse.cuh", "int also_bad = ;\n");
  const auto folder = "../" + work().filename().string() + "/";
  const auto typed = folder + "bad.cu";
  const auto result = compile({typed, "--json"});
  EXPECT_EQ(result.exit_code, 1);
  const auto error = object_of(result)["targets"][0]["error"];
  EXPECT_EQ(error["code"], "compile_failed");
  EXPECT_NE(error["message"].get<std::string>().find(folder + "worse.cuh(1): error"),
            std::string::npos)
      << error["message"];
  const auto log = error["detail"].get<std::string>();
  EXPECT_NE(log.find(typed + "(2): error"), std::string::npos) << log;
  EXPECT_NE(log.find("compilation of \"" + typed + "\""), std::string::npos) << log;
  EXPECT_EQ(log.find("kiln-embedded"), std::string::npos) << log;
  EXPECT_NE(result.err.find(typed + "(2): error"), std::string::npos) << result.err;
}

TEST_F(Compile, SeveralTargetsTakeOneRunAndNoOutputFile) {
  write("k.cu", "extern \"C\" __global__ void entry(int* x) { *x = 1; }\n");
  const auto both = object_of(compile({"k.cu", "--arch", "sm_100a", "--json"}));
  ASSERT_EQ(both["targets"].size(), 2u);
  EXPECT_EQ(both["targets"][1]["arch"], "sm_100a");
  EXPECT_EQ(compile({"k.cu", "--arch", "sm_100a", "-o", "k.cubin"}).exit_code, 2);
}

TEST_F(Compile, ExtractGivesBackWhatWentIn) {
  const std::string source = "extern \"C\" __global__ void entry(int* x) { int unused; *x = 1; }\n";
  write("k.cu", source);
  const auto key = target({"k.cu", "-o", "made.cubin"})["key"].get<std::string>();
  const auto cubin = read_file(work() / "made.cubin");
  const auto extract = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"cache", "extract", key.substr(0, 12)});
    return kiln(more);
  };
  EXPECT_EQ(extract({"--cubin"}).out, cubin);
  const auto file = (work() / "again.cubin").string();
  EXPECT_EQ(extract({"--cubin", "-o", file}).exit_code, 0);
  EXPECT_EQ(read_file(file), cubin);
  EXPECT_EQ(extract({"--cubin", "--json"}).exit_code, 2);
  EXPECT_NE(extract({"--log"}).out.find("unused"), std::string::npos);
  EXPECT_EQ(object_of(extract({"--log", "--json"}))["what"], "log");

  const auto unknown = extract({"--source"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.err.find("k.cu"), std::string::npos);
  EXPECT_NE(unknown.err.find("KILN_SOURCE_DIR"), std::string::npos);
  environment_["KILN_SOURCE_DIR"] = work().string();
  EXPECT_EQ(extract({"--source"}).out, source);
  EXPECT_EQ(extract({"--source", "-o", (work() / "k.cu").string()}).exit_code, 2);
  write("k.cu", source + "\n");  // no longer what was compiled
  EXPECT_EQ(extract({"--source"}).exit_code, 1);
}

TEST_F(Compile, ExtractKnowsTheSourcesThatKilnBringsAndSparesATerminal) {
  const auto key = report_of(prewarm({"--json"}))["kernels"][0]["key"].get<std::string>();
  EXPECT_EQ(
      kiln({"cache", "extract", key, "--source"}).out,
      read_file(std::filesystem::path(KILN_SOURCE_TREE) / "kernel_src/dsv41_kv_insert/kernel.cu"));
  auto wish = request({"cache", "extract", key, "--cubin"});
  wish.terminal = Terminal::both;
  const auto result = run_process(wish);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.out.find("terminal"), std::string::npos);
}

}  // namespace
}  // namespace kiln::test
