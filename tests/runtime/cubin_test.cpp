#include "runtime/cubin.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/ptxas_report.hpp"
#include "tests/runtime/compile_for_test.hpp"
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
}

TEST(Cubin, WithoutARecordedSuffixMatchesByNumber) {
  const CubinInfo unknown{.architecture = {90, 0}, .suffix_known = false};
  EXPECT_TRUE(check_architecture(unknown, "sm_90a").ok());
  EXPECT_FALSE(check_architecture(unknown, "sm_100a").ok());
  EXPECT_EQ(check_architecture(unknown, "90a").code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kiln
