// A prepared launch in a CUDA graph: what a replay reads anew, and what the capture baked in.
//
//   kiln_example_graph      uses the cache that KILN_CACHE_DIR names, or the user's
#include <iostream>
#include <kiln/runtime.hpp>
#include <vector>

#include "examples/engine.hpp"

namespace {

constexpr std::string_view kSource = R"(
extern "C" __global__ void entry(const int* in, int* out, int amount, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] + amount;
}
)";
// Of the parameters above, counted from 0.
constexpr std::size_t kAmount = 2;

constexpr int kCount = 1000;
constexpr kiln::LaunchShape kShape{.grid_blocks = {8}, .block_threads = {128}};

std::vector<int> values_from(int first) {
  std::vector<int> values(kCount);
  for (auto& value : values) value = first++;
  return values;
}

kiln::Status run() {
  KILN_TRY(const auto options, kiln::options_from(kiln::process_environment()));
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(runtime.add_source("engine/add.cu", kSource));
  KILN_TRY(const auto id, runtime.add({.name = "add", .source = "engine/add.cu"}));

  // Before the first capture: loading a module inside of one would end it. The context is current,
  // so warmup also loads.
  const bool gpu = runtime.device().has_value();
  if (gpu) engine::use_first_device();
  kiln::WarmupOptions warmup;
  if (!gpu) warmup.architectures = {"sm_90a"};
  KILN_TRY(const auto report, runtime.warmup(warmup));
  for (const auto& kernel : report.kernels) {
    if (!kernel.status) return kernel.status;
    std::cout << kernel.kernel << " " << kernel.architecture << ": " << to_string(kernel.origin)
              << std::endl;
  }
  if (!gpu) {
    std::cout << "no GPU; would capture add with " << kShape.grid_blocks.x << " blocks of "
              << kShape.block_threads.x << " threads and replay it 4 times" << std::endl;
    return {};
  }

  engine::DeviceArray<int> in(kCount), out(kCount);
  const engine::Stream stream;
  // A graph keeps the kernels that were captured into it; the Kernel may go before it.
  KILN_TRY(const auto kernel, runtime.get(id));
  KILN_TRY(auto launch, runtime.launches().prepare(kernel, kShape, in.get(), out.get(), 1, kCount));
  const auto capture = [&] {
    return engine::Graph::capture(stream, [&] { return launch.launch(stream.get()); });
  };
  KILN_TRY(const auto adds_one, capture());

  // Addresses are baked in, and what lies there is not: each replay reads the inputs of its time.
  for (const int first : {0, 500}) {
    in.assign(values_from(first));
    adds_one.replay(stream);
    engine::expect_equal(out.download(), values_from(first + 1), "replay on new inputs");
  }

  // A patched argument, or a patched grid, holds for the launches from here on ...
  KILN_TRY(launch.set_argument(kAmount, 10));
  KILN_TRY(launch.launch(stream.get()));
  engine::expect_equal(out.download(), values_from(510), "launch after set_argument");
  // ... and never for a graph that was captured before. What a graph shall see change belongs into
  // device memory.
  adds_one.replay(stream);
  engine::expect_equal(out.download(), values_from(501), "replay of the older capture");

  // A new capture bakes in the new value. One descriptor can be in any number of graphs.
  KILN_TRY(const auto adds_ten, capture());
  adds_ten.replay(stream);
  engine::expect_equal(out.download(), values_from(510), "replay of a new capture");
  return {};
}

}  // namespace

int main() {
  return engine::exit_code(run());
}
