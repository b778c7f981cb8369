#include "runtime/compile_options.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/option_table.hpp"

namespace kiln {
namespace {

using Words = std::vector<std::string>;

Words arguments_of(const Words& options) {
  const auto result = canonical_options(options);
  return result ? result->arguments : Words{"error: " + result.error().message()};
}

TEST(CompileOptions, GivesEqualTextForEqualMeanings) {
  struct Case {
    Words canonical;
    std::vector<Words> spellings;
  };
  const std::vector<Case> cases{
      {{"--use_fast_math"},
       {{"-use_fast_math"}, {"--use_fast_math"}, {"-use_fast_math", "--use_fast_math"}}},
      {{"--define-macro=A=1"},
       {{"-DA"},
        {"-D", "A"},
        {"-D A"},
        {"-D=A"},
        {"-DA=1"},
        {"--define-macro=A"},
        {"--define-macro", "A=1"},
        {"-DA=2", "-DA"},
        {"-UA", "-DA"},
        {" -DA"}}},
      {{"--undefine-macro=A"}, {{"-UA"}, {"-U", "A"}, {"-DA", "--undefine-macro=A"}}},
      {{"--define-macro=A=1", "--define-macro=B=2"}, {{"-DA", "-DB=2"}, {"-DB=2", "-DA"}}},
      {{"--std=c++20"}, {{"-std=c++20"}, {"--std", "c++20"}, {"-std=c++17", "--std=c++20"}}},
      {{"--ftz=false"}, {{"-ftz=false"}, {"-ftz", "false"}, {"--ftz=true", "-ftz=false"}}},
      {{"--maxrregcount=32"}, {{"-maxrregcount=32"}, {"-maxrregcount", "032"}}},
      {{"--fmad=false", "--generate-line-info"},
       {{"-lineinfo", "-fmad=false"}, {"-fmad=false", "-lineinfo", "-lineinfo"}}},
      {{"--ptxas-options=-v", "--ptxas-options=-O1"}, {{"-Xptxas", "-v", "-Xptxas=-O1"}}},
      {{"--ptxas-options=-maxrregcount", "--ptxas-options=32", "--ptxas-options=-v"},
       {{"-Xptxas=-maxrregcount", "-Xptxas", "32", "-Xptxas", "-v"}}},
      {{"--diag-error=1", "--diag-suppress=1,2"}, {{"-diag-error=1", "-diag-suppress", "1,2"}}},
      {{"--diag-suppress=1,2", "--diag-error=1"}, {{"-diag-suppress", "1,2", "-diag-error=1"}}},
      {{"--optimization-info=inline"}, {{"-opt-info=inline"}}},
      {{"--device-as-default-execution-space"}, {{"-default-device"}}},
      {{}, {{}}},
  };
  for (const auto& [canonical, spellings] : cases)
    for (const auto& spelling : spellings) {
      EXPECT_EQ(arguments_of(spelling), canonical) << ::testing::PrintToString(spelling);
      EXPECT_EQ(arguments_of(canonical), canonical);
    }
}

TEST(CompileOptions, KeepsAValueInOneArgumentUnchanged) {
  for (const std::string_view value :
       {"a b", "\"q\"", "'c'", "\xC3\xA9", "a;b", "%s", "$(x)", "a=b", "", " ", "\\"})
    EXPECT_EQ(arguments_of({"-DA=" + std::string(value)}),
              Words{"--define-macro=A=" + std::string(value)});
  EXPECT_EQ(arguments_of({"-DF(x)=x + 1"}), Words{"--define-macro=F(x)=x + 1"});
}

TEST(CompileOptions, RefusesWithAReason) {
  struct Case {
    Words options;
    std::string_view reason;
  };
  for (const auto& [options, reason] : {
           Case{{"-arch=sm_90"}, "architecture"},
           Case{{"--gpu-architecture", "sm_90"}, "architecture"},
           Case{{"-code=sm_90"}, "architecture"},
           Case{{"-D__CUDA_ARCH__=800"}, "architecture"},
           Case{{"-Xptxas", "-v,--gpu-name=sm_80"}, "architecture"},
           Case{{"-Xptxas=-O1 -arch sm_80"}, "architecture"},
           Case{{"-dlto"}, "whole cubins"},
           Case{{"-rdc=true"}, "whole cubins"},
           Case{{"--device-c"}, "whole cubins"},
           Case{{"-Xptxas=-c"}, "whole cubins"},
           Case{{"-I/usr/include"}, "include_roots"},
           Case{{"-I", "x"}, "include_roots"},
           Case{{"--include-path=x"}, "include_roots"},
           Case{{"-include=x.h"}, "add_source"},
           Case{{"--use-bundled-headers=x"}, "include_roots"},
           Case{{"--use-pch=x"}, "key"},
           Case{{"--pch"}, "writes files"},
           Case{{"--time=-"}, "writes files"},
           Case{{"-fdevice-time-trace=x"}, "writes files"},
           Case{{"-Xptxas=-o=x"}, "writes files"},
           Case{{"-Xptxas=--compiler-stats-file=x"}, "writes files"},
           Case{{"-Xptxas=--ext-desc-file=x"}, "key does not hold"},
           Case{{"-Xptxas", "-ext-desc-file", "-Xptxas", "x"}, "key does not hold"},
           Case{{"--ptxas-options=x.ptx"}, "file for the assembler"},
           Case{{"-Xptxas=x.ptx"}, "file for the assembler"},
           Case{{"-Xptxas", "x.ptx"}, "file for the assembler"},
           Case{{"-Xptxas= -v"}, "file for the assembler"},
           Case{{"-Xptxas=-v", "-Xptxas=x.ptx"}, "file for the assembler"},
           Case{{"-Xptxas=-O", "-Xptxas=3"}, "file for the assembler"},
           Case{{"-Xptxas=-e=entry", "-Xptxas=x.ptx"}, "file for the assembler"},
           Case{{"-Xptxas=-e", "-Xptxas=-e", "-Xptxas=x.ptx"}, "file for the assembler"},
           Case{{"-Xptxas=-e", "-Xptxas=-optf=x"}, "key does not hold"},
           Case{{"--no-source-include"}, "toolkit"},
           Case{{"-no-cache"}, "Kiln"},
           Case{{"-minimal"}, "Builtins::minimal"},
           Case{{"--enable-tile"}, "tile"},
           Case{{"-DX=__has_include(<a.h>)"}, "scan"},
           Case{{"-DHI=__has_include"}, "option \"--define-macro=HI=__has_include\""},
           Case{{"-D", "HI=__has_include_next"}, "scan"},
           Case{{"-DHI=_CCCL_HAS_INCLUDE"}, "scan"},
           Case{{"-DA(x)=__has_in##x clude"}, "scan"},
           Case{{"-DE=__has_embed"}, "scan"},
           Case{{"-lineinfo=true"}, "no value"},
           Case{{"-ftz"}, "missing"},
           Case{{"-ftz=1"}, "true or false"},
           Case{{"-maxrregcount=many"}, "number"},
           Case{{"-std=c++14"}, "c++17, c++20, c++23"},
           Case{{"-D"}, "missing"},
           Case{{"-D=1"}, "macro's name"},
           Case{{"-DA =1"}, "macro's name"},
           Case{{"-UA=1"}, "name alone"},
           Case{{"-DA=1\n2"}, "line break"},
           Case{{"-D", "A=1\n2"}, "line break"},
           Case{{"--use-fast-math"}, "did you mean --use_fast_math?"},
           Case{{"--define_macro=A"}, "did you mean --define-macro?"},
           Case{{"-lineinf"}, "did you mean -lineinfo?"},
           Case{{"--help"}, "give options of NVRTC"},
           Case{{"-O3"}, "unknown"},
           Case{{"nonsense"}, "unknown"},
           Case{{""}, "unknown"},
       }) {
    const auto result = canonical_options(options);
    ASSERT_FALSE(result) << ::testing::PrintToString(options);
    EXPECT_EQ(result.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(result.error().message().find(reason), std::string::npos) << result.error().message();
  }
}

TEST(CompileOptions, NamesTheVersionThatAnOptionNeeds) {
  struct Case {
    std::string option;
    int major;
    int minor;
  };
  for (const auto& [option, major, minor] :
       {Case{"-Ofc=min", 12, 9}, Case{"-frandom-seed=1", 12, 9}, Case{"-std=c++23", 13, 3},
        Case{"-Werror=reorder", 13, 1}, Case{"-fmax-errors=3", 13, 4}}) {
    const auto result = canonical_options(Words{option});
    ASSERT_TRUE(result) << option;
    EXPECT_TRUE(check_version(*result, major, minor)) << option;
    EXPECT_TRUE(check_version(*result, major + 1, 0)) << option;
    const auto status = check_version(*result, major, minor - 1);
    ASSERT_FALSE(status) << option;
    EXPECT_EQ(status.code(), ErrorCode::unsupported);
    const auto message = status.error().message();
    EXPECT_NE(message.find(result->arguments[0]), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(major) + '.' + std::to_string(minor)), std::string::npos);
  }
  const auto replaced = canonical_options(Words{"-std=c++23", "-std=c++17"});
  ASSERT_TRUE(replaced);
  EXPECT_TRUE(check_version(*replaced, 12, 8));
}

TEST(CompileOptions, TellsOfMacrosThatReadTheClock) {
  const auto timed = canonical_options(Words{"-DA=1", "-DSTAMP=f(__TIME__)"});
  ASSERT_TRUE(timed);
  EXPECT_EQ(timed->time_macro, "--define-macro=STAMP=f(__TIME__)");
  for (const auto& options :
       {Words{"-DA=\"__TIME__\""}, Words{"-DA=__TIME__", "-UA"}, Words{"-DA=__TIME__", "-DA=1"}}) {
    const auto plain = canonical_options(options);
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->time_macro, "");
  }
}

TEST(CompileOptions, AcceptsAMacroThatIsOnlyNamedLikeAQuestion) {
  EXPECT_EQ(arguments_of({"-DX_HAS_INCLUDE"}), Words{"--define-macro=X_HAS_INCLUDE=1"});
  EXPECT_EQ(arguments_of({"-DX_HAS_INCLUDE=0"}), Words{"--define-macro=X_HAS_INCLUDE=0"});
  EXPECT_EQ(arguments_of({"-UX_HAS_INCLUDE"}), Words{"--undefine-macro=X_HAS_INCLUDE"});
}

TEST(CompileOptions, GathersThePartsOfPastedNames) {
  const auto names = [](const Words& options) {
    const auto result = canonical_options(options);
    return result ? result->parts.names() : std::vector<std::string_view>{"refused"};
  };
  const std::vector<std::string_view> none;
  EXPECT_EQ(names({"-DA(x)=__TI##x", "-DB=A(ME__)"}), std::vector<std::string_view>{"__TIME__"});
  EXPECT_EQ(names({"-DA(x)=__TI##x", "-DB=A(ME__)", "-UB"}), none);
  EXPECT_EQ(names({"-DA(x)=__TI##x", "-DB=A(ME__)", "-DA=1"}), none);
  EXPECT_EQ(names({"-DCAT(a,b)=a##b", "-DT=float"}), none);
}

TEST(CompileOptions, HasEachNameOnceInTheTable) {
  std::set<std::string_view> names;
  for (const auto& rule : kOptionRules) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_TRUE(rule.name.starts_with("--")) << rule.name;
    if (!rule.short_name.empty()) {
      EXPECT_TRUE(names.insert(rule.short_name).second) << rule.short_name;
      EXPECT_FALSE(rule.short_name.starts_with("--")) << rule.short_name;
    }
  }
}

}  // namespace
}  // namespace kiln
