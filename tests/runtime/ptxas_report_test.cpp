#include "runtime/ptxas_report.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/compile_for_test.hpp"
#include "tests/support/requires_nvrtc.hpp"

namespace kiln {
namespace {

constexpr std::string_view kLog =
    "/embedded/x.cu(1): warning #177-D: variable \"u\" was declared but never referenced\n"
    "    int u = 3;  // error: quoted source\n"
    "        ^\n"
    "\n"
    "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n"
    "\n"
    "ptxas info    : 0 bytes gmem, 8 bytes cmem[4]\n"
    "ptxas info    : (C7510) Potential Performance Loss: wgmma instructions are serialized\n"
    "ptxas info    : Compiling entry function 'other' for 'sm_90a'\n"
    "ptxas info    : Function properties for other\n"
    "ptxas         .     800 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads\n"
    "ptxas info    : Used 99 registers, used 1 barriers, 800 bytes cumulative stack size\n"
    "ptxas info    : Compile time = 14.384 ms\n"
    "ptxas info    : Compiling entry function 'entry' for 'sm_90a'\n"
    "ptxas info    : Function properties for entry\n"
    "ptxas         .     16 bytes stack frame, 320 bytes spill stores, 340 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 1 barriers, 264 bytes cumulative stack size, 256 "
    "bytes "
    "smem, 360 bytes cmem[0]\n"
    "ptxas info    : Compile time = 2.579 ms\n"
    "ptxas info    : Function properties for helper\n"
    "ptxas         .     7000 bytes stack frame, 8 bytes spill stores, 9 bytes spill loads\n"
    "ptxas warning : something odd\n"
    "  \n";

TEST(PtxasReport, TakesTheUsageOfItsKernelAlone) {
  const ResourceUsage entry{.registers = 32,
                            .static_shared_bytes = 256,
                            .local_bytes = 264,
                            .spill_store_bytes = 320,
                            .spill_load_bytes = 340};
  EXPECT_EQ(read_ptxas_report(kLog, "entry").usage, entry);
  EXPECT_EQ(read_ptxas_report(kLog, "other").usage.registers, 99U);
  EXPECT_EQ(read_ptxas_report(kLog, "absent").usage, ResourceUsage{});
}

TEST(PtxasReport, KeepsWarningsAndRemarksWholeAndNoTimes) {
  EXPECT_EQ(
      read_ptxas_report(kLog, "entry").rest,
      "/embedded/x.cu(1): warning #177-D: variable \"u\" was declared but never referenced\n"
      "    int u = 3;  // error: quoted source\n"
      "        ^\n"
      "\n"
      "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n"
      "\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma instructions are serialized\n"
      "ptxas warning : something odd");
  EXPECT_EQ(read_ptxas_report("", "entry").rest, "");
  EXPECT_EQ(read_ptxas_report(std::string_view(" \n\0", 3), "entry").rest, "");
}

TEST(PtxasReport, OfOneSourceIsTheSameEachTime) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto* source = "extern \"C\" __global__ void entry(int* p) { int unused = 3; *p = 1; }";
  const auto first = read_ptxas_report(test::compile(*nvrtc, source, "sm_90a").log, "entry");
  const auto second = read_ptxas_report(test::compile(*nvrtc, source, "sm_90a").log, "entry");
  EXPECT_EQ(first.rest, second.rest);
  EXPECT_NE(first.rest.find("\"unused\" was declared but never referenced"), std::string::npos);
  EXPECT_EQ(first.rest.find("ptxas"), std::string::npos) << first.rest;
  const auto clean = test::compile(*nvrtc, "extern \"C\" __global__ void entry() {}", "sm_90a");
  EXPECT_EQ(read_ptxas_report(clean.log, "entry").rest, "");
}

TEST(FirstFatalLine, IsTheFirstErrorBehindAnyNumberOfWarnings) {
  std::string warnings;
  for (int i = 0; i < 300; ++i)
    warnings +=
        "/embedded/x.cu(1): warning #177-D: variable \"a: error: b\" is unused\n"
        "  int a;  // x.cu(1): error: quoted source\n\n";
  for (const std::string fatal :
       {"/embedded/x.cu(3): error: identifier \"foo\" is undefined",
        "/embedded/x.cu(1): catastrophic error: cannot open source file \"x.h\"",
        "ptxas fatal   : Unresolved extern function 'missing'",
        "ptxas error   : Entry function 'entry' uses too much shared data",
        "ptxas application ptx input, line 27; error   : Unknown modifier '.instr'",
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
        "Command-line error: invalid or no value specified with --nv_arch flag"})
    EXPECT_EQ(first_fatal_line(warnings + fatal + "\n" + "2 errors detected: error: later\n"),
              fatal);
  // As NVRTC 13.0 writes it: behind a stray blank.
  EXPECT_EQ(first_fatal_line("ptxas info    : 0 bytes gmem\n ptxas error   : too much\n"),
            "ptxas error   : too much");
}

TEST(FirstFatalLine, TakesTheAssemblersReasonBeforeItsSum) {
  EXPECT_EQ(first_fatal_line("ptxas application ptx input, line 26; fatal   : Parsing error near "
                             "'.include': syntax error\n"
                             "ptxas fatal   : Ptx assembly aborted due to errors\n"),
            "ptxas application ptx input, line 26; fatal   : Parsing error near '.include': syntax "
            "error");
}

TEST(FirstFatalLine, ElseIsTheFirstLine) {
  EXPECT_EQ(first_fatal_line("\n\nodd\nmore\n"), "odd");
  EXPECT_EQ(first_fatal_line(""), "");
}

TEST(FirstFatalLine, CutsALongLineAndSaysSo) {
  const auto line = "/embedded/x.cu(1): error: " + std::string(2'000'000, 'x');
  const auto head = first_fatal_line("/embedded/x.cu(1): warning: w\n" + line + "\n");
  EXPECT_LT(head.size(), 600U);
  EXPECT_TRUE(head.starts_with("/embedded/x.cu(1): error: xxx"));
  EXPECT_NE(head.find(std::to_string(line.size()) + " bytes"), std::string::npos) << head;
  std::string accents;
  for (int i = 0; i < 400; ++i) accents += "\xC3\xA9";
  for (const auto* shift : {"error: ", "error:  "}) {  // one of the two cuts within a character
    const auto cut = first_fatal_line(shift + accents);
    EXPECT_EQ(static_cast<unsigned char>(cut[cut.find("...") - 1]), 0xA9) << shift;
  }
}

TEST(FirstFatalLine, FindsTheAssemblersErrorsInRealLogs) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  std::string unused;
  for (int i = 0; i < 30; ++i) unused += "int u" + std::to_string(i) + " = 1;\n";
  const std::pair<std::string, std::string_view> cases[] = {
      {"extern \"C\" __device__ int missing(int);\nextern \"C\" __global__ void entry(int* p) {\n" +
           unused + "*p = missing(3); }",
       "Unresolved extern function 'missing'"},
      {"extern \"C\" __global__ void entry(int* p) {\n" + unused + "asm volatile(\"bogus;\"); }",
       "bogus"},
      {"extern \"C\" __global__ void entry(int* p) {\n" + unused +
           "__shared__ int s[100000];"
           "s[threadIdx.x] = *p; __syncthreads(); *p = s[3]; }",
       "too much shared data"},
      {"extern \"C\" __global__ void entry(int* p) {\n" + unused +
           "asm volatile(\".include \\\"x\\\";\"); }",
       "Parsing error"},
      {"#include \"nope.h\"\n", "cannot open source file \"nope.h\""},
  };
  for (const auto& [source, what] : cases) {
    const auto compiled = test::compile(*nvrtc, source, "sm_90a");
    EXPECT_NE(compiled.result, NVRTC_SUCCESS);
    const auto head = first_fatal_line(compiled.log);
    EXPECT_NE(head.find(what), std::string::npos) << head;
  }
}

}  // namespace
}  // namespace kiln
