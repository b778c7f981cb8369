// What count_instructions.sh runs under callgrind: for each number of arguments, a prepared
// descriptor's launch and a hand-written cuLaunchKernelEx of the same kernel with the same
// attributes, both against the fake driver, which only counts.
//
//   kiln_launch_count CACHE_DIR
//
// Each loop runs twice, with kFew and then kMany launches. callgrind counts the instructions in
// kiln_count_launch and kiln_count_direct, and writes them down at each call of kiln_count_report,
// which says on standard output what they were: arguments, way, launches.
#include <cuda.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"
#include "support/fake_driver/fake_driver.hpp"

extern "C" [[gnu::noinline]] void kiln_count_launch(kiln::LaunchDescriptor& launch, CUstream stream,
                                                    int times) {
  for (int i = 0; i < times; ++i)
    if (!launch.launch(stream)) std::abort();
}

struct DirectLaunch {
  decltype(&::cuLaunchKernelEx) call;
  CUlaunchConfig config;
  CUfunction function;
  void** arguments;
  CUstream stream;
};

extern "C" [[gnu::noinline]] void kiln_count_direct(DirectLaunch& launch, int times) {
  for (int i = 0; i < times; ++i) {
    launch.config.hStream = launch.stream;
    if (launch.call(&launch.config, launch.function, launch.arguments, nullptr) != CUDA_SUCCESS)
      std::abort();
  }
}

extern "C" [[gnu::noinline]] void kiln_count_report(int arguments, const char* way, int launches) {
  std::printf("%d %s %d\n", arguments, way, launches);
}

namespace {

constexpr int kFew = 1000;
constexpr int kMany = 2000;

template <class T>
T must(kiln::Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "kiln_launch_count: %s\n", result.error().message().c_str());
  std::exit(result.error().code() == kiln::ErrorCode::no_toolchain ? 77 : 1);  // 77: skipped
}

std::string source_with(int arguments) {
  std::string text = "extern \"C\" __global__ void entry(";
  for (int i = 0; i < arguments; ++i) text += (i > 0 ? ", int a" : "int a") + std::to_string(i);
  return text + ") { asm volatile(\"griddepcontrol.wait;\"); }\n";
}

}  // namespace

int main(int count, char** values) {
  if (count != 2) return 2;
  fake_driver::FakeDriver driver;
  const auto cuda = must(kiln::test::CudaDriver::open());
  auto runtime = must(kiln::Runtime::open({.cache_directory = values[1]}));
  const auto stream = cuda.stream();
  driver.set_recording(false);
  for (const int arguments : {0, 6, 19, 32}) {
    const auto name = "arguments" + std::to_string(arguments) + ".cu";
    if (!runtime.add_source(name, source_with(arguments))) return 1;
    const auto kernel = must(runtime.get(must(runtime.add({.name = "counted", .source = name}))));

    int value = 0;
    const std::vector<kiln::Argument> list(static_cast<std::size_t>(arguments),
                                           {&value, sizeof value});
    auto launch = must(runtime.launches().prepare(kernel,
                                                  {.grid_blocks = {8},
                                                   .block_threads = {32},
                                                   .cluster_blocks = {2},
                                                   .overlap_previous = kiln::Overlap::yes},
                                                  std::span(list)));

    std::array<CUlaunchAttribute, 2> attributes{};
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim = {2, 1, 1};
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[1].value.programmaticStreamSerializationAllowed = 1;
    std::vector<void*> pointers(static_cast<std::size_t>(arguments), &value);
    DirectLaunch direct{.call = cuda.functions().cuLaunchKernelEx_,
                        .config = {},
                        .function = reinterpret_cast<CUfunction>(kernel.handle()),
                        .arguments = pointers.data(),
                        .stream = stream.handle()};
    direct.config.gridDimX = 8;
    direct.config.gridDimY = direct.config.gridDimZ = 1;
    direct.config.blockDimX = 32;
    direct.config.blockDimY = direct.config.blockDimZ = 1;
    direct.config.attrs = attributes.data();
    direct.config.numAttrs = attributes.size();

    for (const int times : {kFew, kMany}) {
      kiln_count_launch(launch, stream.handle(), times);
      kiln_count_report(arguments, "launch", times);
      kiln_count_direct(direct, times);
      kiln_count_report(arguments, "direct", times);
    }
  }
}
