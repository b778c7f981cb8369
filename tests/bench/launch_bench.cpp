// What a launch through a descriptor costs on the host beside a raw cuLaunchKernelEx with the same
// configuration, over numbers of arguments and launch attributes, and what a warm Runtime::get
// costs, alone and while another thread compiles. launch_rivals.sh sets other libraries beside it.
// Needs a GPU. Pin it to one processor: taskset -c 2 kiln_launch_bench
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "bench/rounds.hpp"
#include "kiln/bench.hpp"
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

constexpr unsigned kLaunches = 200;
constexpr int kGetRounds = 10001;

// An empty kernel with alternating pointers and integers as parameters.
std::string empty_source(int parameters) {
  std::string list;
  for (int i = 0; i < parameters; ++i)
    list +=
        (i > 0 ? ", " : "") + std::string(i % 2 == 0 ? "void*" : "int") + " p" + std::to_string(i);
  return "extern \"C\" __global__ void entry(" + list +
         ") { asm volatile(\"griddepcontrol.wait;\"); }";
}

struct Attributes {
  const char* name;
  Overlap overlap;
  unsigned cluster;
};
constexpr Attributes kAttributes[] = {{"plain", Overlap::no, 1},
                                      {"PDL", Overlap::yes, 1},
                                      {"cluster", Overlap::no, 2},
                                      {"PDL and cluster", Overlap::yes, 2}};

/// The launch as a program without Kiln makes it: everything ready, one driver call.
class RawLaunch {
 public:
  RawLaunch(const Kernel& kernel, const Attributes& attributes, CUstream stream, void** arguments)
      : launch_(reinterpret_cast<decltype(&::cuLaunchKernelEx)>(
            ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernelEx"))),
        function_(reinterpret_cast<CUfunction>(kernel.handle())),
        arguments_(arguments) {
    config_.gridDimX = 2;
    config_.gridDimY = config_.gridDimZ = 1;
    config_.blockDimX = 32;
    config_.blockDimY = config_.blockDimZ = 1;
    config_.hStream = stream;
    config_.attrs = list_;
    if (attributes.overlap == Overlap::yes) {
      auto& attribute = list_[config_.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    if (attributes.cluster > 1) {
      auto& attribute = list_[config_.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim.x = attributes.cluster;
      attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    }
  }
  RawLaunch(const RawLaunch&) = delete;
  RawLaunch& operator=(const RawLaunch&) = delete;

  Status run(unsigned calls) const {
    for (unsigned i = 0; i < calls; ++i)
      if (const auto result = launch_(&config_, function_, arguments_, nullptr);
          result != CUDA_SUCCESS)
        return Error::from_driver("cuLaunchKernelEx", static_cast<int>(result), nullptr);
    return {};
  }

 private:
  decltype(&::cuLaunchKernelEx) launch_;
  CUfunction function_;
  void** arguments_;
  CUlaunchAttribute list_[2] = {};
  CUlaunchConfig config_{};
};

/// Rounds of the report as the harness takes them: a multiple of 4 from 8 on.
unsigned rounds_of(const bench::Report& report) {
  return std::max(8u, (static_cast<unsigned>(report.rounds()) + 3) / 4 * 4);
}

void launch_rows(bench::Report& report, Runtime& runtime, test::CudaDriver& driver, int parameters,
                 const Attributes& attributes) {
  const auto name = "empty" + std::to_string(parameters) + ".cu";
  must(runtime.add_source(name, empty_source(parameters)));
  const auto kernel = must(runtime.get(must(runtime.add({.name = name, .source = name}))));
  std::vector<std::uint64_t> values(static_cast<std::size_t>(parameters), 0);
  std::vector<Argument> arguments;
  std::vector<void*> table;
  for (int i = 0; i < parameters; ++i) {
    auto& value = values[static_cast<std::size_t>(i)];
    arguments.push_back({&value, i % 2 == 0 ? 8u : 4u});
    table.push_back(&value);
  }
  auto descriptor = must(runtime.launches().prepare(kernel,
                                                    {.grid_blocks = {2},
                                                     .block_threads = {32},
                                                     .cluster_blocks = {attributes.cluster},
                                                     .overlap_previous = attributes.overlap},
                                                    std::span<const Argument>(arguments)));
  const auto stream = driver.stream();
  const RawLaunch raw(kernel, attributes, stream.handle(), table.data());

  std::size_t allocated = 0;
  const bench::HostArm baseline{.name = "raw cuLaunchKernelEx",
                                .run = [&](unsigned calls) { return raw.run(calls); }};
  const bench::HostArm candidate{.name = "Kiln descriptor", .run = [&](unsigned calls) -> Status {
                                   const auto before = allocations.load();
                                   for (unsigned i = 0; i < calls; ++i)
                                     if (auto status = descriptor.launch(stream.handle()); !status)
                                       return status;
                                   allocated += allocations.load() - before;
                                   return {};
                                 }};
  // Time only the enqueueing: the queue is drained between samples.
  const auto comparison = must(bench::compare_host(
      baseline, candidate,
      {.calls = kLaunches,
       .settle =
           [&] {
             stream.synchronize();
             return Status{};
           }},
      {.claim = bench::Claim::same, .rounds = rounds_of(report), .warmup_rounds = 20}));

  const auto& last = comparison.last();
  const auto title =
      "host cost of a launch, " + std::to_string(parameters) + " arguments, " + attributes.name;
  const auto nanoseconds = [](std::vector<double> microseconds) {
    for (auto& value : microseconds) value *= 1000;
    return microseconds;
  };
  const auto& samples = last.samples;
  const auto minus = [&](const std::vector<double>& from, const std::vector<double>& what) {
    std::vector<double> result;
    for (std::size_t i = 0; i < from.size(); ++i) result.push_back(1000 * (from[i] - what[i]));
    return result;
  };
  report.add(title + ": " + comparison.candidate, "ns", nanoseconds(samples.candidate),
             {comparison.baseline, nanoseconds(samples.baseline)});
  report.add(title + ": paired difference", "ns", minus(samples.candidate, samples.baseline));
  report.add(title + ": paired difference of raw to raw", "ns",
             minus(samples.aa_second, samples.aa_first));
  report.add(title + ": gates that refuse it", "", {static_cast<double>(last.faults.size())});
  for (const auto& fault : last.faults) std::fprintf(stderr, "    refused: %s\n", fault.c_str());
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
  bench::Report report("launch", argc, argv, 400);
  auto driver = must(test::CudaDriver::open());
  const test::TemporaryDirectory directory;
  auto runtime = must(Runtime::open({.cache_directory = directory.path() / "cache"}));
  must(runtime.add_source("scale.cu", test::kScaleSource));
  for (const int parameters : {0, 6, 19, 32})
    for (const auto& attributes : kAttributes)
      launch_rows(report, runtime, driver, parameters, attributes);
  get_rows(report, runtime);
  return report.finish();
}
