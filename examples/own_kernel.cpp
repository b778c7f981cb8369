// A kernel of your own, from its source string to a checked result.
//
// The source is text, the key is a struct whose fields become constants in the kernel. What is
// compiled of the two is kept in the cache: the second run compiles nothing.
//
//   kiln_example_own_kernel      uses the cache that KILN_CACHE_DIR names, or the user's
#include <algorithm>
#include <iostream>
#include <kiln/runtime.hpp>
#include <vector>

#include "examples/engine.hpp"

namespace {

// Kiln makes jit/key.cuh out of the key: one constant in namespace `key` for each field.
constexpr std::string_view kSource = R"(
#include "jit/key.cuh"

extern "C" __global__ void entry(int* rows, const int* bias, int count) {
  const int i = blockIdx.x * key::block_threads + threadIdx.x;
  if (i >= count) return;
  const int sum = rows[i] + bias[i % key::columns];
  rows[i] = key::relu && sum < 0 ? 0 : sum;
}
)";

// What is compiled in. What changes from call to call is a kernel argument instead.
struct Key {
  int columns = 0;    // of a row
  bool relu = false;  // negative sums become 0
  unsigned block_threads = 256;
  static constexpr auto fields() {
    return std::tuple{kiln::KeyField{"columns", &Key::columns}, kiln::KeyField{"relu", &Key::relu},
                      kiln::KeyField{"block_threads", &Key::block_threads}};
  }
};

kiln::Status run() {
  // When the engine starts: registering compiles nothing.
  KILN_TRY(const auto options, kiln::options_from(kiln::process_environment()));
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(runtime.add_source("engine/add_bias.cu", kSource));
  const Key key{.columns = 100, .relu = true};
  KILN_TRY(const auto id,
           runtime.add(
               {.name = "add_bias", .source = "engine/add_bias.cu", .key = kiln::key_values(key)}));

  // Warmup compiles what the cache does not hold. With a GPU it compiles for that and loads into
  // the current context; without one it needs to be told what to compile for.
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

  const unsigned count = 3000;
  const kiln::LaunchShape shape{
      .grid_blocks = {(count + key.block_threads - 1) / key.block_threads},
      .block_threads = {key.block_threads}};
  if (!gpu) {
    std::cout << "no GPU; would launch add_bias with " << shape.grid_blocks.x << " blocks of "
              << shape.block_threads.x << " threads" << std::endl;
    return {};
  }

  std::vector<int> bias(static_cast<std::size_t>(key.columns)), rows(count), expected(count);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<int>(i) - 50;
  for (std::size_t i = 0; i < count; ++i) {
    rows[i] = static_cast<int>(i % 7);
    expected[i] = std::max(0, rows[i] + bias[i % bias.size()]);
  }
  engine::DeviceArray device_rows(rows), device_bias(bias);

  // get() and prepare() once. The arguments have exactly the types of the kernel's parameters.
  KILN_TRY(const auto kernel, runtime.get(id));
  KILN_TRY(auto launch, runtime.launches().prepare(kernel, shape, device_rows.get(),
                                                   device_bias.get(), static_cast<int>(count)));
  // launch() every step: no memory, no lock.
  const engine::Stream stream;
  KILN_TRY(launch.launch(stream.get()));
  engine::expect_equal(device_rows.download(), expected, "add_bias");
  return {};
}

}  // namespace

int main() {
  return engine::exit_code(run());
}
