#include "runtime/grid_control.hpp"

#include <gtest/gtest.h>

#include <ostream>

#include "runtime/architecture.hpp"
#include "runtime/cubin.hpp"
#include "tests/runtime/compile_for_test.hpp"
#include "tests/runtime/fake_cubin.hpp"
#include "tests/support/requires_nvrtc.hpp"

namespace kiln {

void PrintTo(const GridControl& control, std::ostream* out) {
  *out << (control.waits ? "waits" : "-") << ' ' << (control.triggers ? "triggers" : "-");
}

namespace {

constexpr GridControl kNeither{};
constexpr GridControl kWaits{.waits = true};
constexpr GridControl kTriggers{.triggers = true};
constexpr GridControl kBoth{.waits = true, .triggers = true};

// As the assembler writes them.
constexpr test::Instruction kWait{0x000000000000782E, 0x000FE20000000000};
constexpr test::Instruction kTrigger{0x000000000000782D, 0x000FE20000000000};
constexpr test::Instruction kExit{0x000000000000794D, 0x000FEA0003800000};
constexpr test::Instruction kBranch{0xFFFFFFFC00FC7947, 0x000FC0000383FFFF};

std::span<const std::byte> span_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Result<GridControl> read(std::span<const std::byte> cubin, const Architecture& architecture,
                         std::string_view symbol = "entry") {
  KILN_TRY(const auto sections, read_elf_sections(cubin));
  return read_grid_control(sections, read_elf_symbols(sections), architecture, symbol);
}

GridControl control_of(const std::string& cubin, std::string_view symbol = "entry") {
  const auto info = inspect_cubin(span_of(cubin));
  EXPECT_TRUE(info) << info.error().message();
  if (!info) return {};
  const auto control = read(span_of(cubin), info->architecture, symbol);
  EXPECT_TRUE(control) << control.error().message();
  return control ? *control : GridControl{};
}

GridControl control_in(const std::vector<test::Instruction>& code, int sm = 90) {
  return control_of(test::cubin_bytes(sm, {{.name = "entry", .code = code}}));
}

TEST(GridControl, KnowsTheInstructionsByTheirBits) {
  EXPECT_EQ(control_in({kExit, kBranch}), kNeither);
  EXPECT_EQ(control_in({kWait, kExit}), kWaits);
  EXPECT_EQ(control_in({kExit, kTrigger}), kTriggers);
  EXPECT_EQ(control_in({kExit, kTrigger, kBranch, kWait}), kBoth);
  EXPECT_EQ(control_in(std::vector<test::Instruction>{}), kNeither);
  for (const auto& [instruction, is] : {std::pair{kWait, kWaits}, std::pair{kTrigger, kTriggers}}) {
    const auto [low, high] = instruction;
    // Under every guard but the one that means "never", and with any scheduling bits.
    for (std::uint64_t guard = 0; guard < 16; ++guard)
      EXPECT_EQ(control_in({{(low & ~0xF000ULL) | guard << 12, high}}), guard == 15 ? kNeither : is)
          << guard;
    for (int bit = 41; bit < 62; ++bit)
      EXPECT_EQ(control_in({{low, high ^ 1ULL << bit}}), is) << bit;
    // Any other bit of the operation makes it another one.
    for (int bit = 0; bit < 12; ++bit)
      EXPECT_EQ(control_in({{low ^ 1ULL << bit, high}}), kNeither) << bit;
    EXPECT_EQ(control_in({{low, high ^ 1ULL << 27}}), kNeither);
    // What looks like one across two instructions, or in the upper half of one, is none.
    EXPECT_EQ(control_in({{kExit.first, low}, {high, kExit.second}}), kNeither);
    EXPECT_EQ(control_in({{low << 32 | kExit.first, kExit.second}}), kNeither);
  }
}

TEST(GridControl, ThereIsNoneBelowSm90) {
  EXPECT_EQ(control_in({kWait, kTrigger}, 89), kNeither);
  for (const int sm : {90, 100, 103, 110, 120, 121, 130})
    EXPECT_EQ(control_in({kWait, kTrigger}, sm), kBoth) << sm;
}

TEST(GridControl, FollowsCallsAndOnlyCalls) {
  const auto cubin = test::cubin_bytes(
      100, {{.name = "entry", .code = {kExit}, .calls = {"middle", "idle"}},
            {.name = "alone", .code = {kTrigger}},
            {.name = "launches", .code = {kExit}, .calls = {"alone", "launches"}},
            {.name = "loops", .code = {kExit}, .calls = {"loop"}},
            {.name = "idle", .kernel = false, .code = {kExit}},
            {.name = "middle", .kernel = false, .code = {kBranch}, .calls = {"deep", "missing"}},
            {.name = "deep", .kernel = false, .code = {kWait}},
            {.name = "loop", .kernel = false, .code = {kTrigger}, .calls = {"loop", "back"}},
            {.name = "back", .kernel = false, .code = {kWait}, .calls = {"loop"}},
            {.name = "unused", .kernel = false, .code = {kWait, kTrigger}}});
  EXPECT_EQ(control_of(cubin, "entry"), kWaits);
  EXPECT_EQ(control_of(cubin, "alone"), kTriggers);
  EXPECT_EQ(control_of(cubin, "launches"), kNeither);
  EXPECT_EQ(control_of(cubin, "loops"), kBoth);
  for (const auto* none : {"deep", "nobody", ""}) {
    const auto control = read(span_of(cubin), {100, 0}, none);
    ASSERT_FALSE(control) << none;
    EXPECT_EQ(control.error().code(), ErrorCode::invalid_argument);
  }
}

TEST(GridControl, SurvivesEveryTruncationAndEveryBitFlip) {
  const auto good = test::cubin_bytes(
      90, {{.name = "entry", .code = {kExit, kWait}, .calls = {"called"}},
           {.name = "called", .kernel = false, .code = {kTrigger}, .calls = {"called"}}});
  EXPECT_EQ(control_of(good), kBoth);
  for (std::size_t size = 0; size < good.size(); ++size) {
    // A copy of its own, so that a read past the end is seen.
    const std::vector<char> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(read(std::as_bytes(std::span(cut)), {90, 0})) << size;
    EXPECT_FALSE(inspect_cubin(std::as_bytes(std::span(cut)))) << size;
  }
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<char> bytes(good.begin(), good.end());
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    static_cast<void>(read(std::as_bytes(std::span(bytes)), {90, 0}));
    static_cast<void>(inspect_cubin(std::as_bytes(std::span(bytes))));
  }
}

constexpr const char* kWaitText = "asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");";
constexpr const char* kTriggerText =
    "asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");";

struct ControlCase {
  std::string what;
  std::string functions;  // before the kernel
  std::string body;       // of the kernel (int* p, int n)
  GridControl is;
};

std::vector<ControlCase> cases() {
  const std::string wait = kWaitText;
  const std::string trigger = kTriggerText;
  const std::string inlined = "__device__ __forceinline__ void f(int* p) { p[1] = 5; ";
  const std::string called = "__device__ __noinline__ void f(int* p) { p[1] = p[2]; ";
  return {
      {"nothing", "", "*p = 1;", kNeither},
      {"a wait", "", wait + "*p = 1;", kWaits},
      {"a trigger", "", trigger + "*p = 1;", kTriggers},
      {"both", "", trigger + wait + "*p = 1;", kBoth},
      {"a comment", "", "// griddepcontrol.wait;\n/* " + wait + trigger + " */ *p = 1;", kNeither},
      {"a comment in the assembly", "",
       "asm volatile(\"// griddepcontrol.wait;\\n/* griddepcontrol.launch_dependents; */\");"
       "*p = 1;",
       kNeither},
      {"a string", "__device__ const char text[] = \"griddepcontrol.wait;\";",
       "*p = text[n]; printf(\"griddepcontrol.wait; griddepcontrol.launch_dependents;\\n\");",
       kNeither},
      {"its code as data", "__constant__ unsigned long long words[] = {0x782e, 0xfe20000000000};",
       "*(unsigned long long*)p = words[n & 1] + 0x000fe20000000000ull; p[4] = 0x782e;", kNeither},
      {"under a condition", "", "if (n > 3) { " + wait + " } *p = n;", kWaits},
      {"under a predicate", "",
       "asm volatile(\"{.reg .pred q; setp.gt.s32 q, %0, 7; @q griddepcontrol.wait;"
       "@!q griddepcontrol.launch_dependents;}\" :: \"r\"(n)); *p = n;",
       kBoth},
      {"in a loop", "", "for (int i = 0; i < n; ++i) { p[i] += n; " + wait + "}", kWaits},
      {"in both branches", "",
       "if (p[n] > 2) { " + wait + " *p = 1; } else { " + wait + trigger + " p[3] = 2; }", kBoth},
      {"inlined", inlined + wait + "}", "f(p);", kWaits},
      {"called", called + wait + "}", "f(p); *p = n;", kWaits},
      {"called by what is called",
       called + trigger + "}\n__device__ __noinline__ void g(int* p) { f(p + *p); p[7] = 2; }",
       "g(p); *p = n;", kTriggers},
      {"called and recursive",
       "__device__ __noinline__ void f(int* p, int n) { if (n == 0) { " + wait +
           " return; } p[n] = n; f(p, n - 1); f(p, n - 2); }",
       "f(p, n);", kWaits},
      {"in a function that nothing calls", called + wait + "}", "*p = n;", kNeither},
      {"in code that is dropped", called + wait + trigger + "}",
       "if (sizeof(int) == 3) { " + wait + " f(p); } *p = n;", kNeither},
      {"another kernel's",
       called + wait + "}\nextern \"C\" __global__ void other(int* p) { f(p); " + trigger + " }",
       "*p = n;", kNeither},
  };
}

// All cases as kernels of one program: what one does must not show in another.
std::string program() {
  std::string text;
  const auto all = cases();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto number = std::to_string(i);
    text += "namespace case" + number + " {\n" + all[i].functions +
            "\nextern \"C\" __global__ void entry" + number + "(int* p, int n) { " + all[i].body +
            " }\n}\n";
  }
  return text;
}

TEST(GridControl, TellsWhatTheCodeDoes) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto all = cases();
  for (const auto* target : {"sm_90a", "sm_100a", "sm_120a"}) {
    const auto compiled = test::compile(*nvrtc, program(), target);
    ASSERT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(control_of(compiled.cubin, "entry" + std::to_string(i)), all[i].is)
          << all[i].what << ", " << target;
  }
}

// Compiled for debugging, every function has a section of its own, and nothing is dropped.
TEST(GridControl, FollowsTheCallsOfADebugCompile) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto all = cases();
  for (const auto* target : {"sm_90a", "sm_100a"}) {
    const auto compiled = test::compile(*nvrtc, program(), target, {"--device-debug"});
    ASSERT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].what != "in code that is dropped") {
        EXPECT_EQ(control_of(compiled.cubin, "entry" + std::to_string(i)), all[i].is)
            << all[i].what << ", " << target;
      }
  }
}

TEST(GridControl, OfTwoKernelsEachHasItsOwn) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto source = std::string("__device__ __noinline__ void f(int* p) { *p = p[3]; ") +
                      kWaitText + "}\n" +
                      "extern \"C\" __global__ void first(int* p) { f(p); }\n"
                      "extern \"C\" __global__ void second(int* p) { *p = 2; " +
                      kTriggerText +
                      "}\n"
                      "extern \"C\" __global__ void third(int* p) { *p = 3; }\n"
                      "template <int N> __global__ void fourth(int* p) { " +
                      kWaitText + "*p = N; f(p); " + kTriggerText +
                      "}\ntemplate __global__ void fourth<4>(int*);\n";
  // Every architecture of the compiler: one that encodes them in another way would fail here.
  for (const auto& target : nvrtc->supported_architectures()) {
    if (parse_architecture(target)->sm < 90) continue;
    const auto compiled = test::compile(*nvrtc, source, target);
    ASSERT_EQ(compiled.result, NVRTC_SUCCESS) << target << compiled.log;
    EXPECT_EQ(control_of(compiled.cubin, "first"), kWaits) << target;
    EXPECT_EQ(control_of(compiled.cubin, "second"), kTriggers) << target;
    EXPECT_EQ(control_of(compiled.cubin, "third"), kNeither) << target;
    EXPECT_EQ(control_of(compiled.cubin, "_Z6fourthILi4EEvPi"), kBoth) << target;
  }
}

// A function that is reached through a pointer: the compiler copies each candidate into the kernel.
TEST(GridControl, CountsWhatAPointerMayReach) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto compiled = test::compile(
      *nvrtc,
      std::string("__device__ __noinline__ void f(int* p) { *p = p[3]; ") + kWaitText +
          "}\n__device__ __noinline__ void g(int* p) { *p = p[4]; }\n"
          "__device__ void (*table[2])(int*) = {f, g};\n"
          "extern \"C\" __global__ void fill(int i) { table[i] = i > 3 ? f : g; }\n"
          "extern \"C\" __global__ void entry(int* p, int i) { table[i](p); }\n"
          "extern \"C\" __global__ void direct(int* p, int i) { g(p); }\n",
      "sm_90a");
  ASSERT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
  EXPECT_EQ(control_of(compiled.cubin), kWaits);
  EXPECT_EQ(control_of(compiled.cubin, "direct"), kNeither);
}

}  // namespace
}  // namespace kiln
