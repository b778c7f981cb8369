// What a launch through a descriptor costs on the host beside a raw cuLaunchKernelEx with the same
// configuration, and what a warm Runtime::get costs, alone and while another thread compiles.
// Needs a GPU. Pin it to one processor: taskset -c 2 kiln_launch_bench
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "bench/rounds.hpp"
#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"
#include "support/kernels.hpp"
#include "support/temporary_directory.hpp"

namespace {
std::atomic<std::size_t> allocations{0};
}

// Counts every allocation of the process.
void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

using namespace kiln;
using bench::fail;
using bench::must;

constexpr int kLaunches = 200;
constexpr int kGetRounds = 10001;

// An empty kernel with alternating pointers and integers as parameters.
std::string empty_source(int parameters, bool waits) {
  std::string list;
  for (int i = 0; i < parameters; ++i)
    list +=
        (i > 0 ? ", " : "") + std::string(i % 2 == 0 ? "void*" : "int") + " p" + std::to_string(i);
  return "extern \"C\" __global__ void entry(" + list + ") {" +
         (waits ? "asm volatile(\"griddepcontrol.wait;\");" : "") + "}";
}

void launch_rows(bench::Report& report, Runtime& runtime, test::CudaDriver& driver, int parameters,
                 Overlap overlap) {
  const auto name = "empty" + std::to_string(parameters) + ".cu";
  must(runtime.add_source(name, empty_source(parameters, true)));
  const auto id = must(runtime.add({.name = name, .source = name}));
  const auto kernel = must(runtime.get(id));
  std::vector<std::uint64_t> values(static_cast<std::size_t>(parameters), 0);
  std::vector<Argument> arguments;
  std::vector<void*> table;
  for (int i = 0; i < parameters; ++i) {
    auto& value = values[static_cast<std::size_t>(i)];
    arguments.push_back({&value, i % 2 == 0 ? 8u : 4u});
    table.push_back(&value);
  }
  auto descriptor =
      must(runtime.launches().prepare(kernel, {.block_threads = {32}, .overlap_previous = overlap},
                                      std::span<const Argument>(arguments)));

  const auto raw = reinterpret_cast<decltype(&::cuLaunchKernelEx)>(
      ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernelEx"));
  auto stream = driver.stream();
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream.handle();
  config.attrs = &attribute;
  config.numAttrs = overlap == Overlap::yes ? 1 : 0;
  const auto function = reinterpret_cast<CUfunction>(kernel.handle());

  std::vector<bench::Arm> arms = {
      {"raw cuLaunchKernelEx",
       [&] {
         for (int i = 0; i < kLaunches; ++i)
           if (raw(&config, function, table.data(), nullptr) != CUDA_SUCCESS) fail("raw launch");
       }},
      {"Kiln descriptor", [&] {
         for (int i = 0; i < kLaunches; ++i)
           if (!descriptor.launch(stream.handle())) fail("descriptor launch");
       }}};
  // Time only the enqueueing: the queue is drained between rounds.
  std::size_t allocated = 0;
  for (int round = -20; round < report.rounds(); ++round)
    for (int turn = 0; turn < 2; ++turn) {
      const auto which = static_cast<std::size_t>(round % 2 == 0 ? turn : 1 - turn);
      stream.synchronize();
      const auto before = allocations.load();
      const double time = bench::time_of(arms[which].run) / kLaunches;
      if (which == 1) allocated += allocations.load() - before;
      if (round >= 0) arms[which].microseconds.push_back(time);
    }
  const auto title = "host cost of a launch, " + std::to_string(parameters) + " arguments" +
                     (overlap == Overlap::yes ? ", PDL" : "");
  bench::add_pair(report, title, arms[0], arms[1]);
  report.add(title + ": allocations", "", {static_cast<double>(allocated)});
}

void get_rows(bench::Report& report, Runtime& runtime) {
  const auto id = must(runtime.add(test::scale_spec(0)));
  static_cast<void>(must(runtime.get(id)));
  const auto measure = [&](const std::string& title) {
    std::vector<bench::Arm> arms = {{"an empty loop",
                                     [&] {
                                       for (int i = 0; i < 1000; ++i)
                                         asm volatile("" ::"r"(i) : "memory");
                                     }},
                                    {"Runtime::get(id, ordinal)",
                                     [&] {
                                       for (int i = 0; i < 1000; ++i)
                                         if (!runtime.get(id, 0)) fail("get");
                                     }},
                                    {"Runtime::get(id), current context", [&] {
                                       for (int i = 0; i < 1000; ++i)
                                         if (!runtime.get(id)) fail("get");
                                     }}};
    // Of 1000 calls each, so the microseconds of a run are the nanoseconds of a call.
    bench::run_rounds(arms, kGetRounds, 1);
    for (const auto& arm : {arms[1], arms[2]})
      report.add(title + ": " + arm.name, "ns", arm.microseconds,
                 {arms[0].name, arms[0].microseconds});
  };
  measure("memory hit, nothing else going on");
  std::atomic<bool> stop{false};
  std::atomic<int> compiled{0};
  std::thread compiler([&] {
    for (int i = 1000; !stop; ++i) {
      const auto other = must(runtime.add(test::scale_spec(i)));
      static_cast<void>(must(runtime.artifact(other, "sm_90a")));
      ++compiled;
    }
  });
  measure("memory hit while another thread compiles");
  stop = true;
  compiler.join();
  report.add("compiles during those rows", "", {static_cast<double>(compiled.load())});
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("launch", argc, argv, 401);
  auto driver = must(test::CudaDriver::open());
  const test::TemporaryDirectory directory;
  auto runtime = must(Runtime::open({.cache_directory = directory.path() / "cache"}));
  must(runtime.add_source("scale.cu", test::kScaleSource));
  for (const int parameters : {0, 6, 19, 32})
    for (const auto overlap : {Overlap::no, Overlap::yes})
      launch_rows(report, runtime, driver, parameters, overlap);
  get_rows(report, runtime);
  return report.finish();
}
