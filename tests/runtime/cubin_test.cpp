#include "runtime/cubin.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "runtime/elf.hpp"
#include "runtime/ptxas_report.hpp"
#include "tests/runtime/compile_for_test.hpp"
#include "tests/runtime/fake_tree.hpp"
#include "tests/support/requires_nvrtc.hpp"

namespace kiln {
namespace {

constexpr const char* kSource = R"(
struct Five { char bytes[5]; };
struct Large { char bytes[20000]; };
extern "C" __device__ __noinline__ float helper(float a) { return a * __sinf(a); }
extern "C" __global__ void entry(float* p, int n, char c, Five five) {
  __shared__ float s[64];
  s[threadIdx.x] = helper(p[threadIdx.x]) + n + c + five.bytes[2];
  __syncthreads();
  p[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void large(const __grid_constant__ Large large, float* p) {
  p[threadIdx.x] = large.bytes[threadIdx.x];
}
extern "C" __global__ void none() {}
extern "C" __global__ void stack(float* p) {
  float local[200];
  for (int i = 0; i < 200; ++i) local[i] = p[i];
  p[0] = local[(int)p[1]];
}
template <int N> __global__ void templated(float* p) { p[0] = N; }
template __global__ void templated<4>(float*);
)";

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

const CubinKernel* kernel_of(const CubinInfo& info, std::string_view symbol) {
  const auto found = std::find_if(info.kernels.begin(), info.kernels.end(),
                                  [&](const CubinKernel& k) { return k.symbol == symbol; });
  return found == info.kernels.end() ? nullptr : &*found;
}

TEST(Cubin, TellsTheArchitectureItWasCompiledForWithItsSuffix) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto supported = nvrtc->supported_architectures();
  for (const auto& target : supported) {
    const auto compiled = test::compile(*nvrtc, "extern \"C\" __global__ void entry() {}", target);
    const auto info = inspect_cubin(bytes_of(compiled.cubin));
    ASSERT_TRUE(info) << target << ": " << info.error().message();
    EXPECT_EQ(info->architecture.to_text(), target);
    EXPECT_TRUE(info->suffix_known);
    for (const auto& other : supported) {
      const auto status = check_architecture(*info, other);
      EXPECT_EQ(status.ok(), other == target) << other;
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), ErrorCode::unsupported);
      EXPECT_NE(status.error().message().find(target + ","), std::string::npos);
      EXPECT_NE(status.error().message().find("for " + other), std::string::npos);
    }
  }
}

TEST(Cubin, TellsItsKernelsAndWhatTheyTake) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  for (const auto* target : {"sm_80", "sm_90a", "sm_100a", "sm_120"}) {
    const auto compiled = test::compile(*nvrtc, kSource, target);
    ASSERT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
    const auto info = inspect_cubin(bytes_of(compiled.cubin));
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->kernels.size(), 5U) << target;  // the helper is none

    const auto* entry = kernel_of(*info, "entry");
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->static_shared_bytes, 256U) << target;
    EXPECT_EQ(entry->parameters, (std::vector<KernelParameter>{{0, 8}, {8, 4}, {12, 1}, {13, 5}}));
    const auto* large = kernel_of(*info, "large");
    ASSERT_NE(large, nullptr);
    EXPECT_EQ(large->parameters, (std::vector<KernelParameter>{{0, 20000}, {20000, 8}}));
    ASSERT_NE(kernel_of(*info, "none"), nullptr);
    EXPECT_TRUE(kernel_of(*info, "none")->parameters.empty());
    EXPECT_NE(kernel_of(*info, "_Z9templatedILi4EEvPf"), nullptr);

    // Two sources, one truth.
    for (const auto& kernel : info->kernels) {
      const auto usage = read_ptxas_report(compiled.log, kernel.symbol).usage;
      EXPECT_GT(kernel.registers, 0U);
      EXPECT_EQ(kernel.registers, usage.registers) << kernel.symbol;
      EXPECT_EQ(kernel.static_shared_bytes, usage.static_shared_bytes) << kernel.symbol;
      EXPECT_EQ(kernel.stack_bytes, usage.local_bytes) << kernel.symbol;
    }
    EXPECT_EQ(kernel_of(*info, "stack")->stack_bytes, 800U);
  }
}

constexpr const char* kAlignedSource = R"(
struct alignas(16) Sixteen { char bytes[16]; };
struct alignas(64) SixtyFour { char bytes[128]; };
struct alignas(128) Wide { char bytes[128]; };
struct Empty {};
struct Small { char bytes[4092]; };
struct Large { char bytes[32760]; };
#define ENTRY extern "C" __global__ void
ENTRY wide(const __grid_constant__ Wide a, char b) { }
ENTRY mixed(char a, Sixteen b, const __grid_constant__ SixtyFour c, char d) { }
ENTRY empty(Empty a, Empty b, double c) { }
ENTRY limit_of_old(const __grid_constant__ Small a, int b) { }
ENTRY one_more(const __grid_constant__ Small a, int b, char c) { }
ENTRY limit(const __grid_constant__ Large a, int b) { }
)";

TEST(Cubin, TellsWhereEachParameterLies) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  using Parameters = std::vector<KernelParameter>;
  // The parameters begin at 0x160, 0x210 and 0x380, and alignment is that of the address.
  const struct {
    const char* target;
    unsigned wide;   // 128-aligned, first
    unsigned mixed;  // 64-aligned, after a byte and 16 bytes
  } cases[] = {{"sm_80", 32, 32}, {"sm_90a", 112, 48}, {"sm_100a", 0, 64}, {"sm_120a", 0, 64}};
  for (const auto& [target, wide, mixed] : cases) {
    const auto compiled = test::compile(*nvrtc, kAlignedSource, target);
    ASSERT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
    const auto info = inspect_cubin(bytes_of(compiled.cubin));
    ASSERT_TRUE(info) << info.error().message();
    const struct {
      const char* symbol;
      Parameters parameters;
      unsigned bytes;
    } kernels[] = {
        {"wide", {{wide, 128}, {wide + 128, 1}}, wide + 129},
        {"mixed", {{0, 1}, {16, 16}, {mixed, 128}, {mixed + 128, 1}}, mixed + 129},
        {"empty", {{0, 1}, {1, 1}, {8, 8}}, 16},
        {"limit_of_old", {{0, 4092}, {4092, 4}}, 4096},
        {"one_more", {{0, 4092}, {4092, 4}, {4096, 1}}, 4097},
        {"limit", {{0, 32760}, {32760, 4}}, 32764},
    };
    for (const auto& k : kernels) {
      const auto* kernel = kernel_of(*info, k.symbol);
      ASSERT_NE(kernel, nullptr) << k.symbol;
      EXPECT_EQ(kernel->parameters, k.parameters) << target << ' ' << k.symbol;
      EXPECT_EQ(kernel->parameter_bytes, k.bytes) << target << ' ' << k.symbol;
    }
  }
}

// In a process of its own: a compile after this failure was seen to crash inside NVRTC 13.0.
// failure.
TEST(CubinDeathTest, MoreParametersThanTheLimitAreRefusedByTheCompiler) {
  KILN_REQUIRES_NVRTC();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto refused = [] {
    const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
    if (!nvrtc) return false;
    const auto compiled =
        test::compile(*nvrtc,
                      "struct L { char bytes[32761]; };\n"
                      "extern \"C\" __global__ void entry(const __grid_constant__ L a, int b) { }",
                      "sm_100a");
    return compiled.result != NVRTC_SUCCESS &&
           compiled.log.find("arameter space") != std::string::npos;
  };
  EXPECT_EXIT(_exit(refused() ? 7 : 1), testing::ExitedWithCode(7), "");
}

TEST(Cubin, AnIncompleteParameterTableIsRefused) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto good =
      test::compile(*nvrtc, "extern \"C\" __global__ void entry(int* p, int a, char b) {}",
                    "sm_90a")
          .cubin;
  ASSERT_TRUE(inspect_cubin(bytes_of(good)));
  // Each line of the table in turn loses its name, and then its size.
  int lines = 0;
  for (std::size_t at = 0; at + 16 <= good.size(); ++at) {
    if (good.compare(at, 4, std::string("\x04\x17\x0c\x00", 4)) != 0) continue;
    ++lines;
    auto without = good;
    without[at + 1] = '\x7F';
    auto sizeless = good;
    test::put(sizeless, at + 12, 0, 4);
    for (const auto& bytes : {without, sizeless}) {
      const auto info = inspect_cubin(bytes_of(bytes));
      ASSERT_FALSE(info) << at;
      EXPECT_NE(info.error().message().find("parameters of entry is incomplete"),
                std::string::npos);
    }
  }
  EXPECT_EQ(lines, 3);
}

TEST(Cubin, TellsWhatTheSourceFixesAboutLaunches) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const std::pair<std::string, LaunchBounds> cases[] = {
      {"", {}},
      {"__launch_bounds__(96)", {.max_threads = 96}},
      {"__launch_bounds__(1024, 1)", {.max_threads = 1024}},
      {"__launch_bounds__(64, 2, 7)", {.max_threads = 64, .max_cluster_blocks = 7}},
      {"__cluster_dims__(2, 3)", {.cluster_blocks = {2, 3, 1}}},
      {"__cluster_dims__(8) __launch_bounds__(128)",
       {.max_threads = 128, .cluster_blocks = {8, 1, 1}}},
      {"__block_size__((64, 2, 1), (4, 1, 1))",
       {.block_threads = {64, 2, 1}, .cluster_blocks = {4, 1, 1}, .grid_counts_clusters = true}},
      {"__block_size__((64, 2, 1))",
       {.block_threads = {64, 2, 1}, .cluster_blocks = {1, 1, 1}, .grid_counts_clusters = true}},
  };
  std::string source;
  for (std::size_t i = 0; i < std::size(cases); ++i)
    source += "extern \"C\" __global__ void " + cases[i].first + " kernel" + std::to_string(i) +
              "(int* p) { *p = 1; }\n";
  for (const auto* target : {"sm_90a", "sm_100a", "sm_120a"}) {
    const auto compiled = test::compile(*nvrtc, source, target);
    ASSERT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
    const auto info = inspect_cubin(bytes_of(compiled.cubin));
    ASSERT_TRUE(info) << info.error().message();
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      const auto* kernel = kernel_of(*info, "kernel" + std::to_string(i));
      ASSERT_NE(kernel, nullptr);
      EXPECT_EQ(kernel->bounds, cases[i].second) << target << ' ' << cases[i].first;
    }
  }
}

// What each release writes into the header; the old layout has no note to ask.
TEST(Cubin, KnowsBothLayoutsOfTheFlags) {
  const struct {
    unsigned char abi;
    std::uint32_t flags;
    Architecture architecture;
    bool suffix_known;
  } cases[] = {
      {7, 0x00560556, {86, 0}, true},     // NVRTC 12.8, sm_86
      {7, 0x005A055A, {90, 0}, true},     // 12.8, sm_90
      {7, 0x005A0D5A, {90, 'a'}, true},   // 12.8, sm_90a
      {8, 0x0600640A, {100, 'a'}, true},  // 12.8, sm_100a
      {8, 0x06005A04, {90, 0}, false},    // 13.0, sm_90 or sm_90a: the note tells
      {8, 0x06007902, {121, 0}, false},   // 13.0, sm_121 with any suffix
  };
  for (const auto& c : cases) {
    std::string bytes(64, '\0');
    bytes.replace(0, 7,
                  std::string("\x7F"
                              "ELF\x02\x01\x01",
                              7));
    test::put(bytes, 8, c.abi, 1);
    test::put(bytes, 18, kElfMachineCuda, 2);
    test::put(bytes, 48, c.flags, 4);
    const auto info = inspect_cubin(bytes_of(bytes));
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->architecture, c.architecture) << info->architecture.to_text();
    EXPECT_EQ(info->suffix_known, c.suffix_known) << c.flags;
  }
}

TEST(Cubin, SaysWhyBytesAreNone) {
  std::string other(64, '\0');
  other.replace(0, 7,
                std::string("\x7F"
                            "ELF\x02\x01\x01",
                            7));
  for (const auto& [bytes, why] : {std::pair<std::string, std::string_view>{"", "too short"},
                                   {std::string(100, 'x'), "not an ELF file"},
                                   {other, "ELF machine 0"}}) {
    const auto info = inspect_cubin(bytes_of(bytes));
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(info.error().message().find(why), std::string::npos) << info.error().message();
  }
}

TEST(Cubin, SurvivesEveryTruncationAndManyFlips) {
  KILN_REQUIRES_NVRTC();
  const auto nvrtc = NvrtcLibrary::open(*test::installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  const auto good =
      test::compile(*nvrtc, "extern \"C\" __global__ void entry(int* p, char c) { *p = c; }",
                    "sm_100a")
          .cubin;
  ASSERT_TRUE(inspect_cubin(bytes_of(good)));
  for (std::size_t size = 0; size < good.size(); ++size) {
    // A copy of its own, so that a read past the end is seen.
    const std::vector<char> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(inspect_cubin(std::as_bytes(std::span(cut)))) << size;
  }
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    auto bytes = good;
    // Half of them in the header and the tables, where they hurt.
    for (int flips = 0; flips < 4; ++flips) {
      const auto tables = bytes.size() - bytes.size() / 3;
      const auto at = round % 2 == 0 ? random() % bytes.size()
                                     : (random() % 2 == 0 ? random() % 64
                                                          : tables + random() % (bytes.size() / 3));
      bytes[at] = static_cast<char>(random());
    }
    static_cast<void>(inspect_cubin(bytes_of(bytes)));
  }
  // Numbers so large that a sum of two wraps around.
  for (std::size_t at = 0; at + 8 <= good.size(); at += 8) {
    auto bytes = good;
    test::put(bytes, at, UINT64_MAX - 15, 8);
    static_cast<void>(inspect_cubin(bytes_of(bytes)));
  }
}

TEST(Cubin, WithoutARecordedSuffixMatchesByNumber) {
  const CubinInfo unknown{.architecture = {90, 0}, .suffix_known = false};
  EXPECT_TRUE(check_architecture(unknown, "sm_90a").ok());
  EXPECT_FALSE(check_architecture(unknown, "sm_100a").ok());
  EXPECT_EQ(check_architecture(unknown, "90a").code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kiln
