// A kernel template, compiled for two sets of template arguments.
//
// A name expression says which instance is meant, as C++ would name it. Each instance is a kernel
// of its own with a compile key of its own; the lowered (mangled) name is kept in the cache with
// the code, so that finding it again needs no compiler.
//
//   kiln_example_template_kernel      uses the cache that KILN_CACHE_DIR names, or the user's
#include <iostream>
#include <kiln/runtime.hpp>
#include <string>
#include <vector>

#include "examples/engine.hpp"

namespace {

// No extern "C" here: a template has no plain symbol.
constexpr std::string_view kSource = R"(
namespace engine {
template <class T, int kPerThread>
__global__ void scale(T* x, T factor, int count) {
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * kPerThread;
  for (int i = first; i < first + kPerThread && i < count; ++i) x[i] *= factor;
}
}  // namespace engine
)";

constexpr unsigned kThreads = 128;
constexpr unsigned kCount = 1000;

kiln::LaunchShape shape_for(unsigned per_thread) {
  const unsigned per_block = kThreads * per_thread;
  return {.grid_blocks = {(kCount + per_block - 1) / per_block}, .block_threads = {kThreads}};
}

// T must be what the name expression says: the runtime checks sizes, and cannot check types.
template <class T>
kiln::Status launch_and_check(kiln::Runtime& runtime, kiln::KernelId id, unsigned per_thread) {
  std::vector<T> x(kCount), expected(kCount);
  for (unsigned i = 0; i < kCount; ++i) {
    x[i] = static_cast<T>(i);
    expected[i] = static_cast<T>(3 * i);
  }
  engine::DeviceArray<T> device_x(x);
  KILN_TRY(const auto kernel, runtime.get(id));
  KILN_TRY(auto launch, runtime.launches().prepare(kernel, shape_for(per_thread), device_x.get(),
                                                   T{3}, static_cast<int>(kCount)));
  KILN_TRY(launch.launch(nullptr));
  engine::expect_equal(device_x.download(), expected, kernel.facts().kernel.c_str());
  return {};
}

kiln::Status run() {
  KILN_TRY(const auto options, kiln::options_from(kiln::process_environment()));
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(runtime.add_source("engine/scale.cu", kSource));
  KILN_TRY(const auto floats, runtime.add({.name = "scale_floats",
                                           .source = "engine/scale.cu",
                                           .name_expression = "engine::scale<float, 4>"}));
  KILN_TRY(const auto integers, runtime.add({.name = "scale_integers",
                                             .source = "engine/scale.cu",
                                             .name_expression = "engine::scale<int, 1>"}));

  const auto device = runtime.device();
  if (device) engine::use_first_device();
  const std::string architecture = device ? device->architecture : "sm_90a";
  KILN_TRY(const auto report, runtime.warmup({.architectures = {architecture}}));
  for (const auto& kernel : report.kernels) {
    if (!kernel.status) return kernel.status;
    std::cout << kernel.kernel << " " << kernel.architecture << ": " << to_string(kernel.origin)
              << std::endl;
  }
  for (const auto id : {floats, integers}) {
    KILN_TRY(const auto artifact, runtime.artifact(id, architecture));
    std::cout << artifact.facts.kernel << " is the symbol " << artifact.facts.symbol << ", "
              << artifact.facts.usage.registers << " registers" << std::endl;
  }
  if (!device) {
    std::cout << "no GPU; would launch scale_floats with " << shape_for(4).grid_blocks.x
              << " blocks and scale_integers with " << shape_for(1).grid_blocks.x << " blocks of "
              << kThreads << " threads" << std::endl;
    return {};
  }
  KILN_TRY(launch_and_check<float>(runtime, floats, 4));
  return launch_and_check<int>(runtime, integers, 1);
}

}  // namespace

int main() {
  return engine::exit_code(run());
}
