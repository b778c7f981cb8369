// Public faults of other run-time compilers, tried on ours: T1, T4, T5, T7, T8.
#include "runtime/toolkit_headers.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

using Trial = RuntimeFixture;

constexpr std::string_view kPoison = "#error poisoned header\n";

// T1: toolkit headers are found without flags, and nothing poisoned in the working directory wins.
TEST_F(Trial, T1_ToolkitHeadersAreFoundAndPoisonedOnesNeverWin) {
  const auto nvrtc = installed_nvrtc();
  const auto headers = find_toolkit_headers(*nvrtc.found, process_environment());
  if (headers.roots.empty()) GTEST_SKIP() << "no toolkit headers beside NVRTC";
  const auto work = directory_ / "work";
  std::filesystem::create_directories(work / "kiln-embedded");
  for (const auto* name : {"cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "vector_types.h"}) {
    write_file(work / name, kPoison);
    write_file(work / "kiln-embedded" / name, kPoison);
  }
  const WorkingDirectory here(work);
  for (const auto* include : {"<cuda_fp16.h>", "\"cuda_fp16.h\"", "<cuda_bf16.h>",
                              "\"cuda_bf16.h\"", "<cuda/std/type_traits>"}) {
    const auto artifact = compile("#include " + std::string(include) +
                                  "\nextern \"C\" __global__ void entry(int* p) { *p = 1; }\n");
    EXPECT_TRUE(artifact) << include << ": " << message_of(artifact);
  }
}

TEST_F(Trial, T1_TheStandardLibraryIsRefusedInOneLineWithTheWayOut) {
  const auto artifact =
      compile("#include <cstdint>\nextern \"C\" __global__ void entry(std::uint32_t* p) {}\n");
  ASSERT_FALSE(artifact);
  EXPECT_EQ(artifact.error().code(), ErrorCode::compile_failed);
  const auto message = artifact.error().message();
  EXPECT_NE(message.find("<cstdint>"), std::string::npos) << message;
  EXPECT_NE(message.find("cuda/std/cstdint"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(entries(), 0u);
}

// A header that is nowhere is told by who includes it and by a cure that is there; it is not taken
// for another of the same last name that has vanished, which would be compiled again each time.
TEST_F(Trial, T1_AMissingHeaderHasItsIncluderAndACureThatIsThere) {
  const auto root = directory_ / "include";
  std::filesystem::create_directories(root / "lib");
  write_file(root / "lib" / "inner.h", "#define INNER 1\n");
  write_file(root / "outer.h", "#include <lib/inner.h>\n#include <inner.h>\n");
  auto with = options();
  with.include_roots = {root};
  auto runtime = open(with);
  const std::string kernel = "\nextern \"C\" __global__ void entry() {}\n";
  for (int ask = 0; ask < 2; ++ask) {
    const auto lost = compile(runtime, "#include <outer.h>" + kernel);
    ASSERT_FALSE(lost);
    for (const auto* part : {"<inner.h>", "outer.h(2)", "not found", "include_roots"})
      EXPECT_NE(message_of(lost).find(part), std::string::npos) << message_of(lost);
  }
  EXPECT_EQ(runtime.counters().failed_compiles, 1u);
  const auto headers = find_toolkit_headers(*installed_nvrtc().found, process_environment());
  if (headers.roots.empty()) GTEST_SKIP() << "no toolkit headers beside NVRTC";
  const std::pair<const char*, const char*> cures[] = {{"<stdint.h>", "<cuda/std/cstdint>"},
                                                       {"<vector>", "leave it out"},
                                                       {"<cub/none.cuh>", "nvidia-cuda-cccl"},
                                                       {"<cuda.h>", "for host code"}};
  for (const auto& [include, cure] : cures) {
    const auto artifact = compile("#include " + std::string(include) + kernel);
    EXPECT_NE(message_of(artifact).find(cure), std::string::npos) << message_of(artifact);
  }
}

// T4: blanks, accents, semicolons and percent signs in directories; byte-order marks, CRLF and
// accents in sources.
TEST_F(Trial, T4_AnyCharacterMayStandInTheCacheAndIncludeDirectories) {
  const auto odd = std::string("a b\xc3\xa9;c%d");
  auto with = options();
  with.cache_directory = directory_ / ("cache " + odd);
  const auto headers = directory_ / ("include " + odd);
  std::filesystem::create_directories(headers);
  write_file(headers / "value.h", "#define VALUE 42\n");
  with.include_roots = {headers};
  const std::string text =
      "#include <value.h>\nextern \"C\" __global__ void entry(int* p) { *p = VALUE; }\n";
  auto cold = open(with);
  const auto first = compile(cold, text);
  ASSERT_TRUE(first) << message_of(first);
  auto warm = open(with);
  const auto second = compile(warm, text);
  ASSERT_TRUE(second);
  EXPECT_EQ(warm.counters().disk_hits, 1u);
  EXPECT_EQ(cubin_of(*first), cubin_of(*second));
  EXPECT_EQ(cubin_of(*first).find(odd), std::string::npos);
  EXPECT_TRUE(warnings_.empty()) << ::testing::PrintToString(warnings_);
}

TEST_F(Trial, T4_MarksLineEndsAndAccentsNeverBreakABuild) {
  const std::string code = "extern \"C\" __global__ void entry(int* p) { *p = 7; }\n";
  const std::string variants[] = {
      code,
      "\xef\xbb\xbf" + code,
      "// caf\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97\r\n" + code,
      "extern \"C\" __global__ void entry(int* p) {\r\n  *p = 7;\r\n}\r\n",
  };
  const std::vector<std::string> option_sets[] = {{}, {"-lineinfo"}, {"-G"}};
  std::set<std::string> keys;
  for (const auto& options : option_sets)
    for (const auto& variant : variants) {
      const auto artifact = compile(variant, {.options = options});
      ASSERT_TRUE(artifact) << message_of(artifact);
      keys.insert(artifact->key.hex());
    }
  // The mark is stripped, so the first two are one program; all else stands under names of its own.
  EXPECT_EQ(keys.size(), 3u * 3u);
}

// T5: which file a quoted include means never depends on the working directory.
TEST_F(Trial, T5_TheWorkingDirectoryNeverProvidesAHeader) {
  const std::string text =
      "#include \"rel.h\"\nextern \"C\" __global__ void entry(int* p) { *p = REL; }\n";
  for (const auto* name : {"A", "B", "empty"})
    std::filesystem::create_directories(directory_ / name);
  write_file(directory_ / "A" / "rel.h", "#define REL 1\n");
  write_file(directory_ / "B" / "rel.h", "#define REL 2\n");
  for (const auto* name : {"A", "B", "empty"}) {
    const WorkingDirectory here(directory_ / name);
    const auto artifact = compile(text);
    ASSERT_FALSE(artifact) << name;
    EXPECT_EQ(artifact.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(artifact.error().message().find("rel.h"), std::string::npos);
  }
  // Declared, each root gives its own answer.
  std::set<std::string> cubins;
  for (const auto* name : {"A", "B"}) {
    const WorkingDirectory here(directory_ / "empty");
    auto with = options();
    with.include_roots = {directory_ / name};
    auto runtime = open(with);
    const auto artifact = compile(runtime, text);
    ASSERT_TRUE(artifact) << message_of(artifact);
    cubins.insert(cubin_of(*artifact));
  }
  EXPECT_EQ(cubins.size(), 2u);
}

TEST_F(Trial, T5_ANeighbourInMemoryIsFoundByItsBareName) {
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source("a/h.h", "#if 0\n#include \"b/x.h\"\n#endif\n#include \"x.h\"\n"));
  ASSERT_TRUE(runtime.add_source("a/x.h", "#define X 5\n"));
  ASSERT_TRUE(runtime.add_source("b/x.h", "#define X 6\n"));
  const auto artifact = compile(runtime,
                                "#include \"a/h.h\"\nstatic_assert(X == 5, \"the neighbour\");\n"
                                "extern \"C\" __global__ void entry(int* p) { *p = X; }\n");
  EXPECT_TRUE(artifact) << message_of(artifact);
}

// T7: the line that matters comes first, the whole log is kept.
TEST_F(Trial, T7_TheFatalLineLeadsBehindAnyNumberOfWarnings) {
  std::string text = "extern \"C\" __global__ void entry(int* p) {\n";
  for (int i = 0; i < 300; ++i) text += "  int unused" + std::to_string(i) + ";\n";
  text += "  asm volatile(\"no_such_instruction %0;\" :: \"l\"(p));\n}\n";
  const auto artifact = compile(text);
  ASSERT_FALSE(artifact);
  const auto message = artifact.error().message();
  for (const auto* part : {"trial", "sm_90a", "ptxas", "no_such_instruction", "key "})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  EXPECT_LT(message.size(), 1200u);
  EXPECT_NE(artifact.error().detail().find("unused299"), std::string_view::npos);
}

TEST_F(Trial, T7_WhatAProgramAloneCannotDoHasACure) {
  const KernelSpec clash{.key = {{.name = "tile", .type = "i32", .value = "4"}},
                         .options = {"-Dtile=8"}};
  const std::string kernel = "extern \"C\" __global__ void entry(int* p) ";
  const std::tuple<std::string, KernelSpec, const char*> programs[] = {
      {"__global__ void other() {}\n" + kernel + "{ other<<<1, 1>>>(); }\n", {}, "from the host"},
      {"extern \"C\" __device__ int other();\n" + kernel + "{ *p = other(); }\n", {}, "include"},
      {"#include \"jit/key.cuh\"\n" + kernel + "{ *p = key::tile; }\n", clash, "rename one"},
      {kernel + "{ cudaGridDependencySynchronize(); }\n", {}, "<cuda_device_runtime_api.h>"},
      {kernel + "{ __half2float(*p); }\n", {}, "<cuda_fp16.h>"},
      {kernel + "{ std::min(1, *p); }\n", {}, "cuda::std::"},
      {kernel + "{}\n", {.options = {"-Xptxas=-O1,-v"}}, "--ptxas-options= of its own"},
  };
  for (const auto& [text, spec, cure] : programs) {
    const auto message = message_of(compile(text, spec));
    EXPECT_NE(message.find(cure), std::string::npos) << message;
  }
}

TEST_F(Trial, T7_ManyErrorsAndHugeOnesKeepTheWholeLog) {
  std::string many = "extern \"C\" __global__ void entry() {\n";
  for (int i = 0; i < 5000; ++i) many += "  undefined" + std::to_string(i) + ";\n";
  const auto first = compile(many + "}\n");
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message().find("undefined0"), std::string::npos);
  EXPECT_GT(first.error().detail().size(), 5000u);

  const auto huge = compile("template <class T> struct " + std::string(200000, 'N') +
                            " { typename T::no_such t; };\n" + std::string(200000, 'N') +
                            "<int> x;\nextern \"C\" __global__ void entry() {}\n");
  ASSERT_FALSE(huge);
  EXPECT_LT(huge.error().message().size(), 2000u);
  EXPECT_GT(huge.error().detail().size(), 200000u);
}

TEST_F(Trial, T7_WarningsDoNotFailABuildAndAHitKeepsThemInItsFacts) {
  const std::string text =
      "extern \"C\" __global__ void entry(int* p) { int never_used; *p = 1; }\n";
  const auto cold = compile(text);
  ASSERT_TRUE(cold) << message_of(cold);
  EXPECT_NE(cold->facts.log.find("never_used"), std::string::npos);
  EXPECT_EQ(warnings_.size(), 1u);
  const auto warm = compile(text);
  ASSERT_TRUE(warm);
  EXPECT_EQ(warm->facts.log, cold->facts.log);
  EXPECT_EQ(warnings_.size(), 1u);
}

// T8: the time macros have no key; without them the bytes are the same everywhere.
TEST_F(Trial, T8_TheTimeMacrosAreRefusedHoweverTheyGetIn) {
  const std::string bodies[] = {
      "*p = __TIME__[0];",
      "*p = __DATE__[0];",
      "*p = __TIMESTAMP__[0];",
      "*p = M[0];",
  };
  for (const auto& body : bodies) {
    auto spec = KernelSpec{};
    if (body.find("M[0]") != std::string::npos) spec.options = {"-DM=__TIME__"};
    const auto artifact =
        compile("extern \"C\" __global__ void entry(char* p) { " + body + " }\n", spec);
    ASSERT_FALSE(artifact) << body;
    EXPECT_EQ(artifact.error().code(), ErrorCode::not_cacheable) << message_of(artifact);
  }
  const auto artifact =
      compile("extern \"C\" __global__ void entry(char* p) { *p = __TIME__[0]; }\n",
              {.unknown_inputs = UnknownInputs::compile_without_storing});
  EXPECT_TRUE(artifact) << message_of(artifact);
  EXPECT_EQ(entries(), 0u);
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(compile("template <int N> __global__ void k(int* p) { *p = N; }\n",
                    {.name_expression = "k<__TIME__[7]>"})
                .error()
                .code(),
            ErrorCode::not_cacheable);
  EXPECT_TRUE(
      compile("// __TIME__ in a comment\n"
              "extern \"C\" __global__ void entry(char* p) { *p = \"__DATE__\"[0]; }\n"));
}

TEST_F(Trial, T8_TwoEmptyCachesGetTheSameBytes) {
  std::string bytes;
  for (const auto* name : {"one", "two"}) {
    auto with = options();
    with.cache_directory = cache_ = directory_ / name;
    std::filesystem::create_directories(directory_ / (std::string("work ") + name));
    const WorkingDirectory here(directory_ / (std::string("work ") + name));
    auto runtime = open(with);
    const auto artifact =
        compile(runtime, "extern \"C\" __global__ void entry(int* p) { int never_used; *p = 1; }\n",
                {.options = {"-lineinfo"}});
    ASSERT_TRUE(artifact) << message_of(artifact);
    const auto entry = read_file(entry_path(artifact->key));
    ASSERT_FALSE(entry.empty());
    if (bytes.empty())
      bytes = entry;
    else
      EXPECT_EQ(entry, bytes);
  }
}

// Whether a header is there is an input too, by whatever name the question is asked.
TEST_F(Trial, T13_AHeaderThatAppearsGivesAnotherKeyOrTheProgramHasNone) {
  const auto root = directory_ / "include";
  std::filesystem::create_directories(root);
  write_file(root / "there.h", "\n");
  auto with = options();
  with.include_roots = {root};
  const std::string body =
      "\nextern \"C\" __global__ void entry(int* p) { *p = 2; }\n#else\n"
      "extern \"C\" __global__ void entry(int* p) { *p = 1; }\n#endif\n";
  const auto key = [&](const std::string& text) {
    auto runtime = open(with);
    const auto artifact = compile(runtime, text);
    EXPECT_TRUE(artifact) << message_of(artifact);
    return artifact ? artifact->key : cache::Digest{};
  };
  const auto plain = "#include <there.h>\n#if __has_include(<late.h>)" + body;
  const auto before = key(plain);
  write_file(root / "late.h", "\n");
  EXPECT_NE(key(plain), before);
  for (const auto* hidden : {"#define HI __has_include\n#if HI(<late.h>)",
                             "#define A(x) __has_in##x\n#if A(clude)(<late.h>)"}) {
    auto runtime = open(with);
    EXPECT_EQ(compile(runtime, "#include <there.h>\n" + std::string(hidden) + body).error().code(),
              ErrorCode::not_cacheable)
        << hidden;
  }
  auto runtime = open(with);
  const auto optional = compile(runtime, "#include <there.h>\n#if HI(<late.h>)" + body,
                                {.options = {"-DHI=__has_include"}});
  EXPECT_FALSE(optional);
}

// A trigraph is another spelling of '#', which no scan of includes sees.
TEST_F(Trial, T13_StandardsWithTrigraphsAreRefused) {
  for (const auto* standard : {"-std=c++11", "-std=c++14"})
    EXPECT_EQ(compile("extern \"C\" __global__ void entry() {}\n", {.options = {standard}})
                  .error()
                  .code(),
              ErrorCode::invalid_argument)
        << standard;
}

// T13, in part: a header three levels down counts by content alone.
TEST_F(Trial, T13_AHeaderThreeLevelsDownCountsByContentAndNotByTime) {
  const auto root = directory_ / "include";
  std::filesystem::create_directories(root);
  write_file(root / "one.h", "#include \"two.h\"\n");
  write_file(root / "two.h", "#include <three.h>\n");
  write_file(root / "three.h", "#define DEEP 1\n");
  auto with = options();
  with.include_roots = {root};
  const std::string text =
      "#include <one.h>\nextern \"C\" __global__ void entry(int* p) { *p = DEEP; }\n";
  const auto run = [&](std::uint64_t compiles) {
    auto runtime = open(with);
    const auto artifact = compile(runtime, text);
    EXPECT_TRUE(artifact) << message_of(artifact);
    EXPECT_EQ(runtime.counters().compiles, compiles);
    return artifact ? artifact->key : cache::Digest{};
  };
  const auto first = run(1);
  const auto time = std::filesystem::last_write_time(root / "three.h");
  write_file(root / "three.h", "#define DEEP 2\n");
  std::filesystem::last_write_time(root / "three.h", time);
  EXPECT_NE(run(1), first);
  write_file(root / "three.h", "#define DEEP 1\n");
  EXPECT_EQ(run(0), first);
  for (const auto* name : {"one.h", "two.h", "three.h"})
    std::filesystem::last_write_time(root / name, time + std::chrono::hours(1));
  EXPECT_EQ(run(0), first);
}

}  // namespace
}  // namespace kiln::test
