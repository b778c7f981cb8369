#include "runtime/source_scan.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {
namespace {

using namespace std::string_view_literals;

std::string summary(const SourceScan& scan) {
  std::string text;
  for (const auto& use : scan.includes) {
    text += use.kind == IncludeKind::include       ? ""
            : use.kind == IncludeKind::has_include ? "?"
                                                   : "+";
    text += use.form == IncludeForm::angle ? '<' + use.spelling + '>' : '"' + use.spelling + '"';
    text += '@' + std::to_string(use.line) + ' ';
  }
  return text;
}

struct IncludeCase {
  std::string_view text;
  std::string_view found;
};

TEST(SourceScan, FindsEachSpellingOfAnInclude) {
  for (const auto& [text, found] : {
           IncludeCase{"#include \"a.h\"", "\"a.h\"@1 "},
           IncludeCase{"#include <a/b.h>\n", "<a/b.h>@1 "},
           IncludeCase{"#include\"a.h\"\n#include<b.h>", "\"a.h\"@1 <b.h>@2 "},
           IncludeCase{"  #\t include \"a.h\" // why", "\"a.h\"@1 "},
           IncludeCase{"/* x\n */ # /* y */ include /* z */ \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"%:include \"a.h\"", "\"a.h\"@1 "},
           IncludeCase{"#inc\\\nlude \"a\\\n.h\"", "\"a.h\"@1 "},
           IncludeCase{"#include \\\r\n\"a.h\"\r\n", "\"a.h\"@1 "},
           IncludeCase{"int x;\r\n#include \"a.h\"\r\n#include <b.h>\r\n", "\"a.h\"@2 <b.h>@3 "},
           IncludeCase{"\r#include \"a.h\"", "\"a.h\"@1 "},
           IncludeCase{"#\vinclude\f\"a.h\"", "\"a.h\"@1 "},
           IncludeCase{"#include \"with blank \xC3\xA9;%.h\"", "\"with blank \xC3\xA9;%.h\"@1 "},
           IncludeCase{"#include \"a\\.h\"", "\"a\\.h\"@1 "},
           IncludeCase{"#import \"a.h\"", "\"a.h\"@1 "},
           IncludeCase{"#include_next <a.h>", "+<a.h>@1 "},
           IncludeCase{"#if 0\n#include \"off.h\"\n#endif", "\"off.h\"@2 "},
           IncludeCase{"\xEF\xBB\xBF#include \"a.h\"", "\"a.h\"@1 "},
           IncludeCase{"#include \"a.h\" junk", "\"a.h\"@1 "},
           IncludeCase{"int a = 1'000'000;\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"int a = 0x1'0;char c = '\\'';\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"#error don't /* stop\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"\"open\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"R\"never closed(\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"R\"x(\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"\"\\\" /* \"\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"R\"x(1)y\" )x\"\n#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"auto R = 1; u8R\"(\n\n)\";\n#include \"a.h\"", "\"a.h\"@4 "},
           IncludeCase{"a /**/ /**/\n/**//**/#include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"a /* x\n */ #include \"a.h\"", "\"a.h\"@2 "},
           IncludeCase{"a /* x\n */ /* y */ # /*\n*/ include \"a.h\"", "\"a.h\"@3 "},
           IncludeCase{"\"a\"R\"(b\n#include \"a.h\"\n// )\"", "\"a.h\"@2 "},
           IncludeCase{"'a'\\\nu8R\"(b\n#include \"a.h\"\n// )\"", "\"a.h\"@3 "},
           IncludeCase{"R\"(a)\"R\"(b\n#include \"a.h\"\n// )\"", "\"a.h\"@2 "},
           IncludeCase{"\"a\"_x\"b\"LR\"(c\n#include \"a.h\"\n// )\"", "\"a.h\"@2 "},
           IncludeCase{"$R\"(\n/*\n)\"\n#include \"a.h\" /* */", "\"a.h\"@4 "},
           IncludeCase{"\"a\"\xC3\xA9R\"(\n/*\n)\"\n#include \"a.h\" /* */", "\"a.h\"@4 "},
           IncludeCase{"R\"\\\n(\n/*\n)\"\n#include \"a.h\" /* */", "\"a.h\"@5 "},
           IncludeCase{"R\"a b)\\(\n/*\n)a b)\\\"\n#include \"a.h\" /* */", "\"a.h\"@4 "},
       })
    EXPECT_EQ(summary(scan_source(text)), found) << text;
}

TEST(SourceScan, FindsNoIncludeWhereNoneIs) {
  for (const auto text :
       {"// #include \"a.h\""sv,
        "// x \\\n#include \"a.h\""sv,
        "/*\n#include \"a.h\"\n*/"sv,
        "x #include \"a.h\""sv,
        "struct A{};\r#include \"a.h\""sv,
        "a /* x \\\n */ #include \"a.h\""sv,
        "\"a\" R\"(b\n#include \"a.h\"\n// )\""sv,
        "\"a\"/**/R\"(b\n#include \"a.h\"\n// )\""sv,
        "R\"(\n#include \"a.h\"\n)\""sv,
        "LR\"ab(\n)\"\n#include \"a.h\"\n)ab\""sv,
        "\"\\\n#include \\\"a.h\\\"\""sv,
        "#include"sv,
        "#include \"\""sv,
        "#include \"open"sv,
        "#include <open\n>"sv,
        "#includes \"a.h\""sv,
        "# 1 \"a.h\""sv,
        "#line 1 \"a.h\""sv,
        "#pragma include \"a.h\""sv,
        "?\?=include \"a.h\""sv,
        "#inc\\ \nlude \"a.h\""sv,
        "##include \"a.h\""sv,
        "#ifdef __has_include\n#endif"sv,
        "#ifndef __has_include_next\n#elifdef X_HAS_INCLUDE\n#endif"sv,
        "#elifndef __has_embed\n#undef __has_include"sv,
        "#if defined __has_include && !defined ( __has_embed )"sv,
        "#if A > 1 && (B || defined(__has_include))\n#elif defined(a_HAS_INCLUDE)"sv,
        "has_included a_has_include_not"sv,
        "#define CAT(a, b) a##b\nint CAT(has, include), has, next, _, T, E;"sv,
        "#define __has_include(x) 0"sv}) {
    const auto scan = scan_source(text);
    EXPECT_EQ(summary(scan), "") << text;
    EXPECT_TRUE(scan.unknowns.empty()) << text;
  }
}

TEST(SourceScan, CountsHasIncludeOperandsAsIncludes) {
  for (const auto& [text, found] : {
           IncludeCase{"#if __has_include(<a.h>)", "?<a.h>@1 "},
           IncludeCase{"#if __has_include /*x*/ ( /*y*/ \"a.h\" /*z*/ )", "?\"a.h\"@1 "},
           IncludeCase{"#if \\\n__has_include(<a.h>) && __has_include(<b.h>)",
                       "?<a.h>@2 ?<b.h>@2 "},
           IncludeCase{"#if X_HAS_INCLUDE(<a.h>)", "?<a.h>@1 "},
           IncludeCase{"#define HAVE __has_include(<a.h>)", "?<a.h>@1 "},
           IncludeCase{"#if __has_include_next(<a.h>)", "+<a.h>@1 "},
       })
    EXPECT_EQ(summary(scan_source(text)), found) << text;
}

TEST(SourceScan, ReportsWhatOnlyThePreprocessorCanCompute) {
  struct Computed {
    std::string_view text;
    UnknownKind kind;
    std::string_view operand;
    unsigned line;
  };
  for (const auto& [text, kind, operand, line] : {
           Computed{"#include MACRO // x", UnknownKind::computed_include, "MACRO // x", 1},
           Computed{"\n#include MAKE(a, b)\r\n", UnknownKind::computed_include, "MAKE(a, b)", 2},
           Computed{"#include u8\"a.h\"", UnknownKind::computed_include, "u8\"a.h\"", 1},
           Computed{"#if __has_include(MACRO)", UnknownKind::computed_has_include, "MACRO)", 1},
           Computed{"#if __has_include(\n<a.h>)", UnknownKind::computed_has_include, "", 1},
           Computed{"#if __has_include(<a.h\n", UnknownKind::computed_has_include, "<a.h", 1},
           Computed{"#define HI __has_include\n#if HI(<x.cuh>)", UnknownKind::computed_has_include,
                    "__has_include", 1},
           Computed{"HI(__has_include_next)(<a.h>)", UnknownKind::computed_has_include,
                    "__has_include_next", 1},
           Computed{"#define HI X_HAS_INCLUDE", UnknownKind::computed_has_include, "X_HAS_INCLUDE",
                    1},
           Computed{"#define HI defined __has_include", UnknownKind::computed_has_include,
                    "__has_include", 1},
           Computed{"#if F(defined __has_include)", UnknownKind::computed_has_include,
                    "__has_include", 1},
           Computed{"#if F defined(__has_include)", UnknownKind::computed_has_include,
                    "__has_include", 1},
           Computed{"#if defined X\n__has_include", UnknownKind::computed_has_include,
                    "__has_include", 2},
           Computed{"\n#define A(x) __has_in##x\n#if A(clude)(<x>)",
                    UnknownKind::computed_has_include, "__has_include", 2},
           Computed{"#define C(a, b) a##b\n#if C(_CCCL_HAS, _INCLUDE)(<x>)",
                    UnknownKind::computed_has_include, "_CCCL_HAS_INCLUDE", 1},
           Computed{"#define E __has_embed", UnknownKind::embed, "__has_embed", 1},
           Computed{"#define E(x) __has_##x\nE(embed)", UnknownKind::embed, "__has_embed", 1},
           Computed{"#embed \"data.bin\"", UnknownKind::embed, "\"data.bin\"", 1},
           Computed{"#if __has_embed(\"data.bin\")", UnknownKind::embed, "\"data.bin\")", 1},
       }) {
    const auto scan = scan_source(text);
    ASSERT_EQ(scan.unknowns.size(), 1U) << text;
    EXPECT_EQ(scan.unknowns[0].kind, kind) << text;
    EXPECT_EQ(scan.unknowns[0].text, operand) << text;
    EXPECT_EQ(scan.unknowns[0].line, line) << text;
  }
}

TEST(SourceScan, ReportsTheFirstTimeMacro) {
  struct Timed {
    std::string_view text;
    std::string_view name;
    unsigned line;
  };
  for (const auto& [text, name, line] : {
           Timed{"x\nchar a[] = __DATE__; __TIME__", "__DATE__", 2},
           Timed{"__TIME__", "__TIME__", 1},
           Timed{"#if 0\n__TIMESTAMP__\n#endif", "__TIMESTAMP__", 2},
           Timed{"__DA\\\nTE__", "__DATE__", 1},
           Timed{"#define A __DA ## TE__", "__DATE__", 1},
           Timed{"#define A __ ## TI %:%: ME ## __", "__TIME__", 1},
           Timed{"#define P(a, b) a##b\nP(__TIME, STAMP__)", "__TIMESTAMP__", 1},
           Timed{"#define P(a, b) a##b\nP(__TIME_, _)", "__TIME__", 1},
           Timed{"#define P(a, b, c, d) a##b##c##d\nP(__, DA, TE, __)", "__DATE__", 1},
           Timed{"#include NAME(__DATE__)", "__DATE__", 1},
           Timed{"S($__TIME__)", "__TIME__", 1},
           Timed{"\xC3\xA9__DATE__$", "__DATE__", 1},
           Timed{"#define A /*\n*/ #__TIME__", "__TIME__", 2},
       }) {
    const auto scan = scan_source(text);
    ASSERT_TRUE(scan.time_macro.has_value()) << text;
    EXPECT_EQ(scan.time_macro->name, name) << text;
    EXPECT_EQ(scan.time_macro->line, line) << text;
  }
}

TEST(SourceScan, IgnoresTimeMacrosThatAreNotTokens) {
  for (const auto text :
       {"// __DATE__"sv, "/* __TIME__ */"sv, "\"__DATE__\""sv, "'__TIME__'"sv, "R\"(__DATE__)\""sv,
        "__DATE___ A__DATE__ __DATE"sv, "__DA TE__"sv, "#define P(a) a##_x\nP(__DATE)"sv,
        "1__DATE__"sv, "#define P(a, b) a##b\nint _, T, I, M, E, D, A, S, TIME, P(DATE, TIME);"sv,
        "#define P(a, b) a##b\nint STAMP, __A, B__, P(__D, ATE), __time__;"sv})
    EXPECT_FALSE(scan_source(text).time_macro.has_value()) << text;
}

TEST(PasteParts, JoinAcrossTexts) {
  const auto parts = [](std::string_view text) { return scan_source(text).parts; };
  const auto front = parts("P(__TI, x)");
  const auto back = parts("\n#define P(a, b) a##b\nME__ clude");
  EXPECT_TRUE(front.names().empty());
  EXPECT_TRUE(back.names().empty());
  EXPECT_EQ(front.with(back).names(), std::vector<std::string_view>{"__TIME__"});
  EXPECT_EQ(front.with(back).line, 2U);
  EXPECT_EQ(back.with(front).line, 2U);
  EXPECT_EQ(parts("__has_in").with(back).names(), std::vector<std::string_view>{"__has_include"});
  EXPECT_EQ(front.with(parts("MESTAMP__")).line, 0U);
  EXPECT_TRUE(front.with(parts("DATE__ ME")).names().empty());
}

TEST(SourceScan, SeesWhatANameExpressionUses) {
  EXPECT_TRUE(scan_source("scale<int, __TIME__[7]>").time_macro.has_value());
  EXPECT_EQ(scan_source("scale<int, __has_include(<a.h>)>").includes.size(), 1U);
  EXPECT_EQ(scan_source("scale<int, F(__has_include)>").unknowns.size(), 1U);
  const auto plain = scan_source("scale<int, 7>");
  EXPECT_TRUE(!plain.time_macro && plain.includes.empty() && plain.unknowns.empty());
}

TEST(SourceScan, StripsAByteOrderMarkOnce) {
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBFx"), "x");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBF\xEF\xBB\xBF"), "\xEF\xBB\xBF");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB"), "\xEF\xBB");
  EXPECT_EQ(without_byte_order_mark(""), "");
  EXPECT_TRUE(scan_source("\xEF\xBB\xBFx").byte_order_mark);
  EXPECT_FALSE(scan_source("x").byte_order_mark);
}

// Every text is a heap block of exactly its size, so that the address sanitizer sees one byte more.
TEST(SourceScan, ReadsNothingBeyondAnyCutText) {
  const std::string whole =
      "\xEF\xBB\xBF%:include \"a.h\"\r\n#include <b> // c\\\r\n/* d */ R\"xy(\n)xy\" u8R\"(\"'\\''"
      "\n#if __has_include(\"e\") 1'0.5 __DA##TE__ %:%: #include MACRO\\\n x\n#embed <f>\n#define "
      "__has_include(x) \\";
  for (std::size_t begin = 0; begin <= whole.size(); ++begin) {
    for (std::size_t end = begin; end <= whole.size(); ++end) {
      const std::vector<char> cut(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                                  whole.begin() + static_cast<std::ptrdiff_t>(end));
      scan_source({cut.data(), cut.size()});
    }
  }
}

}  // namespace
}  // namespace kiln
