// Runs the built examples as a newcomer would: each twice over one cache, with a GPU or without,
// with a compiler or without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <string>

#include "support/cuda_driver.hpp"
#include "support/process.hpp"
#include "support/requires_nvrtc.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

// What an example writes. In it ORIGIN stands for where a kernel came from, and whatever differs
// from one architecture to another is replaced as steady() does.
struct Example {
  std::string name;
  std::string start;        // on every machine
  std::string with_gpu;     // then, where there is a GPU
  std::string without_gpu;  // or where there is none
};

const Example kExamples[] = {
    {"kiln_example_own_kernel", "add_bias ARCH: ORIGIN\n", "add_bias: all 3000 values are right\n",
     "no GPU; would launch add_bias with 12 blocks of 256 threads\n"},
    {"kiln_example_template_kernel",
     "scale_floats ARCH: ORIGIN\n"
     "scale_integers ARCH: ORIGIN\n"
     "scale_floats is the symbol _ZN6engine5scaleIfLi4EEEvPT_S1_i, N registers\n"
     "scale_integers is the symbol _ZN6engine5scaleIiLi1EEEvPT_S1_i, N registers\n",
     "scale_floats: all 1000 values are right\n"
     "scale_integers: all 1000 values are right\n",
     "no GPU; would launch scale_floats with 2 blocks and scale_integers with 8 blocks of 128 "
     "threads\n"},
    {"kiln_example_graph", "add ARCH: ORIGIN\n",
     "replay on new inputs: all 1000 values are right\n"
     "replay on new inputs: all 1000 values are right\n"
     "launch after set_argument: all 1000 values are right\n"
     "replay of the older capture: all 1000 values are right\n"
     "replay of a new capture: all 1000 values are right\n",
     "no GPU; would capture add with 8 blocks of 128 threads and replay it 4 times\n"},
    {"kiln_embed", "dsv41_kv_insert ARCH KEY: ORIGIN\n",
     "padded query: all 262144 values are right\n"
     "cache: all 270336 values are right\n"
     "replay 1: every byte as the host model says\n"
     "padded query: all 262144 values are right\n"
     "cache: all 270336 values are right\n"
     "replay 2: every byte as the host model says\n"
     "padded query: all 262144 values are right\n"
     "cache: all 270336 values are right\n"
     "replay 3: every byte as the host model says\n",
     "no GPU; would capture 8 tokens of 16 heads and replay them 3 times\n"},
    {"kiln_decode",
     "dsv41_kv_insert ARCH: ORIGIN\n"
     "dsv41_mega_decode ARCH: ORIGIN\n"
     "dsv41_mega_decode ARCH: ORIGIN\n"
     "dsv41_kv_insert ARCH: ORIGIN\n"
     "dsv41_swapab_decode ARCH: ORIGIN\n"
     "dsv41_mega_decode ARCH: ORIGIN\n"
     "dsv41_kv_insert ARCH: ORIGIN\n"
     "dsv41_swapab_decode ARCH: ORIGIN\n",
     "cache: all 8650752 values are right\n"
     "layer 1, ratio 0, 8 tokens: as the reference has it\n"
     "cache: all 8650752 values are right\n"
     "cache: all 18874368 values are right\n"
     "layer 19, ratio 2, 8 tokens: as the reference has it\n"
     "cache: all 8650752 values are right\n"
     "cache: all 37748736 values are right\n"
     "layer 39, ratio 1, 8 tokens: as the reference has it\n"
     "cache: all 8650752 values are right\n"
     "layer 1, ratio 0, 64 tokens: as the reference has it\n"
     "cache: all 8650752 values are right\n"
     "cache: all 18874368 values are right\n"
     "layer 19, ratio 2, 64 tokens: as the reference has it\n"
     "cache: all 8650752 values are right\n"
     "cache: all 37748736 values are right\n"
     "layer 39, ratio 1, 64 tokens: as the reference has it\n"
     "64 steps of 40 layers: N by swap-AB, N by mega\n"
     "nothing was compiled or loaded after the warmup\n",
     "no GPU; would run 40 layers for 64 steps of 1 to 64 tokens\n"},
    {"kiln_mla",
     "kimi_k3_mla_attend ARCH: ORIGIN\n"
     "kimi_k3_mla_reduce ARCH: ORIGIN\n",
     "400 replays of one capture: 12 requests ended, 208 pages went to another request\n"
     "960 rows are as the reference has them\n"
     "nothing was compiled or loaded after the warmup\n",
     "no GPU; would capture a step of 8 requests and replay it 400 times\n"},
};

std::string replaced(std::string text, const char* pattern, const std::string& by) {
  return std::regex_replace(text, std::regex(pattern), by);
}

std::string steady(std::string text) {
  text = replaced(std::move(text), "sm_[0-9]+[af]?", "ARCH");
  text = replaced(std::move(text), "[0-9]+ registers", "N registers");
  text = replaced(std::move(text), "[0-9]+ by (swap-AB|mega)", "N by $1");
  return replaced(std::move(text), "[0-9a-f]{32}", "KEY");
}

class Examples : public ::testing::Test {
 protected:
  ProcessResult run(const std::string& name,
                    const std::map<std::string, std::string>& variables = {}) const {
    // A cache for each: some have kernels in common.
    std::map<std::string, std::string> environment = {{"KILN_CACHE_DIR", directory_ / name}};
    // Where the machine's NVRTC may be named; nothing else of the caller's environment counts.
    for (const char* variable :
         {"CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"})
      if (const char* value = std::getenv(variable); value != nullptr)
        environment[variable] = value;
    for (const auto& [variable, value] : variables) environment[variable] = value;
    return run_process(
        {.arguments = {KILN_EXAMPLES_DIRECTORY "/" + name}, .environment = environment});
  }

  std::string missing_nvrtc() const { return directory_ / "missing"; }

  TemporaryDirectory directory_;
  bool gpu_ = CudaDriver::open().has_value();
};

TEST_F(Examples, CompileAtTheFirstRunAndAtTheSecondFindWhatTheyCompiled) {
  KILN_REQUIRES_NVRTC();
  for (const auto& example : kExamples)
    for (const char* origin : {"compiled", "disk"}) {
      const auto result = run(example.name);
      EXPECT_EQ(result.exit_code, 0) << example.name << "\n" << result.err;
      EXPECT_EQ(result.err, "") << example.name;
      EXPECT_EQ(steady(result.out), replaced(example.start, "ORIGIN", origin) +
                                        (gpu_ ? example.with_gpu : example.without_gpu))
          << example.name;
    }
}

TEST_F(Examples, WithoutACompilerAndWithAnEmptyCacheSayWhatIsMissing) {
  for (const auto& example : kExamples) {
    const auto result = run(example.name, {{"KILN_NVRTC", missing_nvrtc()}});
    EXPECT_EQ(result.exit_code, 1) << example.name << "\n" << result.out;
    EXPECT_EQ(result.out, "") << example.name;
    EXPECT_NE(result.err.find("NVRTC 12.8 or newer is needed to compile"), std::string::npos)
        << example.name << "\n"
        << result.err;
  }
}

const std::string kFallback = "kiln_example_fallback";
const std::string kRight = "relu: all 1000 values are right\n";

std::string tail(bool gpu) {
  return (gpu ? "" : "no GPU; would launch it, and takes the host's path\n") + kRight;
}

TEST_F(Examples, FallbackTakesTheKernelThatCanBeHad) {
  KILN_REQUIRES_NVRTC();
  const auto first = run(kFallback);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out,
            "not relu_next: unsupported\n"
            "not relu_vectors: compile_failed\n"
            "chose relu\n"
            "1 compiled, 0 found in the cache\n" +
                tail(gpu_));
  EXPECT_NE(first.err.find("engine log: warning: kernel relu_vectors does not compile"),
            std::string::npos)
      << first.err;

  const auto second = run(kFallback, {{"KILN_NVRTC", missing_nvrtc()}});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out,
            "not relu_next: unsupported\n"
            "not relu_vectors: no_toolchain\n"
            "chose relu\n"
            "0 compiled, 1 found in the cache\n" +
                tail(gpu_));
}

TEST_F(Examples, FallbackTakesTheHostWhenNoKernelCanBeHad) {
  const auto result = run(kFallback, {{"KILN_NVRTC", missing_nvrtc()}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "not relu_next: unsupported\n"
            "not relu_vectors: no_toolchain\n"
            "not relu: no_toolchain\n"
            "0 compiled, 0 found in the cache\n"
            "no kernel; takes the host's path\n" +
                kRight);
}

TEST_F(Examples, FallbackHearsOfACacheThatCannotBeUsed) {
  KILN_REQUIRES_NVRTC();
  const auto result = run(kFallback, {{"KILN_CACHE_DIR", "/dev/null/cache"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("1 compiled, 0 found in the cache\n" + tail(gpu_)), std::string::npos)
      << result.out;
  EXPECT_NE(result.err.find("engine log: warning: cannot read the cache /dev/null/cache"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace kiln::test
