// The attention of a whole model while it decodes: the 40 layers of DeepSeek-V4.1-Flash, on one of
// four ranks, are built, warmed up and run for 64 steps of 1 to 64 tokens. Nothing is compiled or
// loaded late, and a layer of each kind is checked against mathematics in double.
//
//   kiln_decode       uses the cache that KILN_CACHE_DIR names, or the user's
#include <iostream>
#include <kiln/runtime.hpp>
#include <kiln/spdlog.hpp>
#include <string>
#include <vector>

#include <kiln/kernels/kernels.hpp>

#include "examples/decode/check.hpp"

namespace {

using namespace decoding;  // NOLINT: the example's own

// A machine without a GPU plans and compiles for this one.
const kiln::DeviceInfo kH200{
    .architecture = "sm_90a", .sm_count = 132, .shared_bytes_per_block = 227 * 1024};

kiln::Result<std::vector<v41::DecodeAttention>> build_layers(kiln::Runtime& runtime,
                                                             const kiln::DeviceInfo& device) {
  std::vector<v41::DecodeAttention> layers;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    KILN_TRY(auto built, v41::DecodeAttention::create(runtime, options_of(layer), device));
    layers.push_back(std::move(built));
  }
  return layers;
}

// One step of all layers, and which kernel each of them took.
kiln::Status run_step(const std::vector<v41::DecodeAttention>& layers,
                      std::vector<v41::StepLaunches>& launches, const Memory& memory,
                      std::size_t tokens, CUstream stream, std::size_t (&taken)[2]) {
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    auto& of_layer = launches[layer];
    KILN_TRY(layers[layer].update(of_layer, step_of(memory, layer, tokens)));
    KILN_TRY(of_layer.insert(stream));
    KILN_TRY(of_layer.attend(stream));
    ++taken[of_layer.choice().kernel == v41::DecodeKernel::swapab ? 0 : 1];
  }
  return {};
}

kiln::Status decode(kiln::Runtime& runtime, const std::vector<v41::DecodeAttention>& layers) {
  const auto warm = runtime.counters();
  Sequences sequences;
  Memory memory(sequences);
  const engine::Stream stream;
  std::vector<v41::StepLaunches> launches;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    KILN_TRY(auto prepared, layers[layer].prepare(step_of(memory, layer, kMost)));
    launches.push_back(std::move(prepared));
  }

  std::size_t taken[2] = {};
  for (std::size_t tokens = 1; tokens <= kMost; ++tokens) {
    memory.assign(sequences.next(tokens));
    KILN_TRY(run_step(layers, launches, memory, tokens, stream.get(), taken));
    if (tokens == 8 || tokens == kMost)
      for (const std::size_t layer : {1u, 19u, 39u}) check(memory, layer, tokens);
  }
  ENGINE_CALL(cuCtxSynchronize);
  std::cout << kMost << " steps of " << kLayers << " layers: " << taken[0] << " by swap-AB, "
            << taken[1] << " by mega" << std::endl;
  const auto now = runtime.counters();
  if (now.compiles != warm.compiles || now.module_loads != warm.module_loads)
    return kiln::Error(kiln::ErrorCode::invalid_argument,
                       "kernels were compiled or loaded after the warmup");
  std::cout << "nothing was compiled or loaded after the warmup" << std::endl;
  return {};
}

kiln::Status run() {
  KILN_TRY(auto options, kiln::options_from(kiln::process_environment()));
  options.log = kiln::spdlog_stderr_sink(kiln::LogLevel::warning);
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(kiln::kernels::add_sources(runtime));
  const auto device = runtime.device();
  KILN_TRY(const auto layers, build_layers(runtime, device ? *device : kH200));

  // With a context current, so that modules are loaded as well.
  if (device) engine::use_first_device();
  kiln::WarmupOptions warmup;
  if (!device) warmup.architectures = {kH200.architecture};
  KILN_TRY(const auto report, runtime.warmup(warmup));
  for (const auto& kernel : report.kernels) {
    if (!kernel.status) return kernel.status;
    std::cout << kernel.kernel << " " << kernel.architecture << ": " << to_string(kernel.origin)
              << std::endl;
  }
  if (device) return decode(runtime, layers);
  std::cout << "no GPU; would run " << kLayers << " layers for " << kMost << " steps of 1 to "
            << kMost << " tokens" << std::endl;
  return {};
}

}  // namespace

int main() {
  return engine::exit_code(run());
}
