// A chain of small kernels, each of which needs what the one before it wrote, under graph replay:
// with programmatic dependent launch against without. Needs a GPU.
//
// Every kernel reads the buffer that its predecessor wrote and adds 1, so that a chain whose order
// is broken gives a wrong sum, which refuses the row.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "kiln/bench.hpp"
#include "kiln/runtime.hpp"

namespace {

using namespace kiln;
using bench::must;

constexpr unsigned kChain = 20;
constexpr unsigned kBlockThreads = 128;

// What the kernel may do before its wait is what PDL hides: here, its start and index arithmetic.
constexpr std::string_view kSource = R"(
extern "C" __global__ void __launch_bounds__(128)
entry(const unsigned* from, unsigned* to, unsigned count) {
  asm volatile("griddepcontrol.launch_dependents;");
  const unsigned i = blockIdx.x * 128 + threadIdx.x;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (i < count) to[i] = from[i] + 1;
}
)";

/// The chain from `start` through two buffers that take turns.
struct Chain {
  bench::Buffer start, even, odd;
  std::vector<LaunchDescriptor> launches{};
  unsigned count = 0;

  Status enqueue(CUstream stream) {
    for (auto& launch : launches)
      if (auto status = launch.launch(stream); !status) return status;
    return {};
  }
  Status check() const {
    const auto& last = kChain % 2 == 0 ? odd : even;
    std::vector<unsigned> got(count);
    if (auto status = last.read(std::as_writable_bytes(std::span(got))); !status) return status;
    for (unsigned i = 0; i < count; ++i)
      if (got[i] != 7 * i + kChain)
        return Error(ErrorCode::invalid_argument, "element " + std::to_string(i) + " is " +
                                                      std::to_string(got[i]) + " for " +
                                                      std::to_string(7 * i + kChain));
    return {};
  }
};

bench::DeviceArm make_arm(Runtime& runtime, const bench::Device& device, const Kernel& kernel,
                          unsigned blocks, Overlap overlap) {
  const unsigned count = blocks * kBlockThreads;
  std::vector<unsigned> values;
  for (unsigned i = 0; i < count; ++i) values.push_back(7 * i);
  const auto chain = std::make_shared<Chain>(
      Chain{must(device.upload(values)), must(device.allocate(count * sizeof(unsigned))),
            must(device.allocate(count * sizeof(unsigned)))});
  chain->count = count;
  const void* from = chain->start.data();
  for (unsigned i = 0; i < kChain; ++i) {
    void* const to = (i % 2 == 0 ? chain->even : chain->odd).data();
    chain->launches.push_back(must(runtime.launches().prepare(
        kernel,
        {.grid_blocks = {blocks}, .block_threads = {kBlockThreads}, .overlap_previous = overlap},
        from, to, count)));
    from = to;
  }
  return {.name = overlap == Overlap::yes ? "with PDL" : "without PDL",
          .enqueue = [chain](CUstream stream) { return chain->enqueue(stream); },
          .check = [chain] { return chain->check(); },
          .outputs = {chain->even, chain->odd}};
}

/// Per launch instead of per chain.
std::vector<double> per_launch(std::vector<double> chains) {
  for (auto& time : chains) time /= kChain;
  return chains;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("pdl_chain", argc, argv, 40);
  auto runtime = must(Runtime::open({}));
  const auto device = must(bench::Device::open(runtime));
  must(runtime.add_source("chain.cu", kSource));
  const auto kernel = must(runtime.get(must(runtime.add({.name = "chain", .source = "chain.cu"}))));
  for (const unsigned blocks : {1u, 16u, 132u, 1056u})
    for (const auto l2 : {bench::L2::warm, bench::L2::cold}) {
      const auto plain = make_arm(runtime, device, kernel, blocks, Overlap::no);
      const auto overlapped = make_arm(runtime, device, kernel, blocks, Overlap::yes);
      const auto comparison = must(bench::compare_device(
          device, plain, overlapped, {.l2 = l2, .calls = 5},
          {.rounds = std::max(8u, (static_cast<unsigned>(report.rounds()) + 3) / 4 * 4),
           .bitwise_parity = true}));
      const auto& last = comparison.last();
      const auto name = "chain of " + std::to_string(kChain) + " kernels, " +
                        std::to_string(blocks) + " blocks, " +
                        (l2 == bench::L2::warm ? "warm L2" : "cold L2") + ", a launch";
      report.add(name + ", with PDL", "us", per_launch(last.samples.candidate),
                 {"without PDL", per_launch(last.samples.baseline)});
      std::fprintf(stderr, "    PDL is faster: %s\n",
                   std::string(bench::to_string(comparison.verdict)).c_str());
      for (const auto& fault : last.faults)
        std::fprintf(stderr, "    refused: %s\n", fault.c_str());
      report.add(name + ", gates that refuse it", "", {static_cast<double>(last.faults.size())});
      report.add(name + ", without PDL twice", "us", per_launch(last.samples.aa_second),
                 {"without PDL again", per_launch(last.samples.aa_first)});
    }
  return report.finish();
}
