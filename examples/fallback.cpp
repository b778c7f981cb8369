// When a kernel cannot be had: the next one, and in the end the engine's own code.
//
// Nothing throws, so the engine decides by the error's code. Try it without a compiler as well:
//
//   kiln_example_fallback                            uses the cache that KILN_CACHE_DIR names, or
//                                                    the user's
//   KILN_NVRTC=missing kiln_example_fallback         no compiler: takes what the cache holds
//   KILN_NVRTC=missing KILN_CACHE_DIR=$(mktemp -d) kiln_example_fallback
//                                                    no compiler, empty cache: the host's code
#include <algorithm>
#include <iostream>
#include <kiln/runtime.hpp>
#include <optional>
#include <vector>

#include "examples/engine.hpp"

namespace {

// Three ways to the same result, fastest first. The first stands for one that is written for a
// GPU that this machine does not have, the second for one that somebody broke.
constexpr std::string_view kPlain = R"(
extern "C" __global__ void entry(int* x, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && x[i] < 0) x[i] = 0;
}
)";
constexpr std::string_view kBroken = R"(
extern "C" __global__ void entry(int* x, int count) { vectorised_relu(x, count); }
)";
const kiln::KernelSpec kCandidates[] = {
    {.name = "relu_next", .source = "engine/relu.cu", .oldest_sm = 999},
    {.name = "relu_vectors", .source = "engine/relu_vectors.cu"},
    {.name = "relu", .source = "engine/relu.cu"},
};

void relu_on_host(std::vector<int>& x) {
  for (auto& value : x) value = std::max(value, 0);
}

// Everything that Kiln has to say comes here, from any thread; the engine's own words as well.
void log(kiln::LogLevel level, std::string_view message) {
  std::cerr << "engine log: " << to_string(level) << ": " << message << std::endl;
}

// The first candidate that can be had for `architecture`; none: the host must do it. An engine asks
// once, at its start.
kiln::Result<std::optional<kiln::KernelId>> choose(kiln::Runtime& runtime,
                                                   std::string_view architecture) {
  for (const auto& candidate : kCandidates) {
    KILN_TRY(const auto id, runtime.add(candidate));
    const auto artifact = runtime.artifact(id, architecture);  // found or compiled; needs no GPU
    if (artifact) {
      std::cout << "chose " << candidate.name << std::endl;
      return std::optional(id);
    }
    switch (artifact.error().code()) {
      case kiln::ErrorCode::unsupported:     // made for other GPUs
      case kiln::ErrorCode::compile_failed:  // the kernel's fault; detail() holds the whole log
      case kiln::ErrorCode::no_toolchain:    // not in the cache, and no compiler: another may be
        std::cout << "not " << candidate.name << ": " << to_string(artifact.error().code())
                  << std::endl;
        log(kiln::LogLevel::warning, artifact.error().message());
        break;
      default:  // a fault of the program or of the machine, which another kernel would not cure
        return artifact.error();
    }
  }
  return std::optional<kiln::KernelId>();
}

kiln::Status relu_on_device(kiln::Runtime& runtime, kiln::KernelId id, std::vector<int>& x) {
  engine::use_first_device();
  engine::DeviceArray<int> device_x(x);
  const auto count = static_cast<unsigned>(x.size());
  const kiln::LaunchShape shape{.grid_blocks = {(count + 255) / 256}, .block_threads = {256}};
  KILN_TRY(const auto kernel, runtime.get(id));
  KILN_TRY(auto launch,
           runtime.launches().prepare(kernel, shape, device_x.get(), static_cast<int>(count)));
  KILN_TRY(launch.launch(nullptr));
  x = device_x.download();
  return {};
}

kiln::Status run() {
  KILN_TRY(auto options, kiln::options_from(kiln::process_environment()));
  options.log = log;
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(runtime.add_source("engine/relu.cu", kPlain));
  KILN_TRY(runtime.add_source("engine/relu_vectors.cu", kBroken));

  const auto device = runtime.device();
  if (!device && device.error().code() != kiln::ErrorCode::no_device) return device.error();
  if (!device) log(kiln::LogLevel::info, device.error().message());
  KILN_TRY(const auto chosen, choose(runtime, device ? device->architecture : "sm_90a"));

  const auto counters = runtime.counters();
  std::cout << counters.compiles << " compiled, " << counters.disk_hits << " found in the cache"
            << std::endl;

  std::vector<int> x, expected;
  for (int value = -500; value < 500; ++value) {
    x.push_back(value);
    expected.push_back(value < 0 ? 0 : value);
  }
  if (chosen && device) {
    KILN_TRY(relu_on_device(runtime, *chosen, x));
  } else {
    std::cout << (chosen ? "no GPU; would launch it, and takes" : "no kernel; takes")
              << " the host's path" << std::endl;
    relu_on_host(x);
  }
  engine::expect_equal(x, expected, "relu");
  return {};
}

}  // namespace

int main() {
  return engine::exit_code(run());
}
