// A program of somebody else's: registers a kernel of its own, opens a Runtime, compiles without a
// device where there is NVRTC, and plans a shipped kernel.
//
//   outside CACHE_DIRECTORY SOURCE_DIRECTORY
#include <kiln/artifact.hpp>
#include <kiln/cache/api.hpp>
#include <kiln/cache/digest.hpp>
#include <kiln/cache/log.hpp>
#include <kiln/cache/result.hpp>
#include <kiln/cache/store.hpp>
#include <kiln/cuda_types.hpp>
#include <kiln/device_info.hpp>
#include <kiln/error.hpp>
#include <kiln/kernel.hpp>
#include <kiln/kernel_spec.hpp>
#include <kiln/kernels/dsv41_kv_insert/args.hpp>
#include <kiln/kernels/dsv41_kv_insert/key.hpp>
#include <kiln/kernels/dsv41_kv_insert/launch.hpp>
#include <kiln/kernels/dsv41_kv_insert/plan.hpp>
#include <kiln/kernels/dsv41_kv_insert/reference.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/layers/deepseek_v41/decode_attention.hpp>
#include <kiln/kernels/layers/deepseek_v41/dispatch.hpp>
#include <kiln/kernels/manifest.hpp>
#include <kiln/key.hpp>
#include <kiln/launch.hpp>
#include <kiln/log.hpp>
#include <kiln/options.hpp>
#include <kiln/runtime.hpp>
#include <kiln/spdlog.hpp>
#include <kiln/version.hpp>
#include <kiln/warmup.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "embedded_sources.hpp"

// In functions.cpp.
std::size_t public_functions();

namespace {

namespace kv_insert = kiln::kernels::dsv41_kv_insert;

struct Key {
  unsigned block = 256;
  bool operator==(const Key&) const = default;
  static constexpr auto fields() { return std::tuple{kiln::KeyField{"block", &Key::block}}; }
};

kiln::Status use_shipped_kernel(kiln::Runtime& runtime, bool with_compiler) {
  KILN_TRY(kiln::kernels::add_sources(runtime));
  const kv_insert::Problem problem{.heads = 16, .page_slots = 128, .tokens = 8};
  KILN_TRY(const auto plan, kv_insert::plan(problem, {.architecture = "sm_90a", .sm_count = 132}));
  std::printf("plan: %u blocks of %u threads\n", plan.shape.grid_blocks.x,
              plan.shape.block_threads.x);
  KILN_TRY(const auto kernel, kv_insert::KvInsert::create(runtime, problem));
  if (!with_compiler) return {};
  KILN_TRY(const auto artifact, runtime.artifact(kernel.id(), "sm_90a"));
  std::printf("shipped symbol: %s\n", artifact.facts.symbol.c_str());
  return {};
}

kiln::Status use_own_kernel(kiln::Runtime& runtime, bool with_compiler) {
  const auto sources = outside::embedded_sources();
  KILN_TRY(runtime.add_sources(sources));
  KILN_TRY(const auto id, runtime.add({.name = "twice",
                                       .source = "outside/kernels/twice.cu",
                                       .key = kiln::key_values(Key{})}));
  if (!with_compiler) return {};
  KILN_TRY(const auto artifact, runtime.artifact(id, "sm_90a"));
  std::printf("own symbol: %s\n", artifact.facts.symbol.c_str());
  return {};
}

// Every embedded text is its file, byte for byte.
kiln::Status compare_with_files(const std::string& source_directory) {
  for (const auto& source : outside::embedded_sources()) {
    std::ifstream file(source_directory + std::string(source.name.substr(sizeof("outside") - 1)),
                       std::ios::binary);
    if (std::string(std::istreambuf_iterator<char>(file), {}) != source.text)
      return kiln::Error(kiln::ErrorCode::invalid_argument,
                         std::string(source.name) + " is not its file's text");
  }
  return {};
}

kiln::Status run(const char* cache_directory, const char* source_directory) {
  KILN_TRY(compare_with_files(source_directory));
  kiln::RuntimeOptions options;
  options.cache_directory = cache_directory;
  options.log = kiln::spdlog_stderr_sink(kiln::LogLevel::warning);
  const auto toolchain = kiln::find_toolchain(options, kiln::process_environment());
  if (!toolchain) std::printf("nothing is compiled: %s\n", toolchain.error().message().c_str());
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(use_own_kernel(runtime, toolchain.has_value()));
  return use_shipped_kernel(runtime, toolchain.has_value());
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const auto status = run(arguments[1], arguments[2]);
  if (!status) return std::printf("%s\n", status.error().message().c_str()), 1;
  std::printf("Kiln %s, %zu public functions\n", std::string(kiln::version()).c_str(),
              public_functions());
  return 0;
}
