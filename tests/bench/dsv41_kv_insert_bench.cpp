// Device time of the cache writer in a chain of launches, beside a plain kernel that reads and
// writes as many bytes. Each value is the time of one launch in a replay of a graph of 20. Needs a
// GPU.
#include <string>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "support/cuda_driver.hpp"
#include "tests/bench/report.hpp"
#include "tests/kernel_src/dsv41_kv_insert_inputs.hpp"

namespace kiln::kernels::dsv41_kv_insert::test {
namespace {

using kiln::test::CudaDriver;

constexpr int kLaunches = 20;

// Piece i is read while i < read, written while i < written.
constexpr std::string_view kFloorSource = R"(
struct alignas(16) Piece { unsigned x, y, z, w; };
extern "C" __global__ void __launch_bounds__(128)
entry(const Piece* from, Piece* to, unsigned read, unsigned written) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const unsigned i = blockIdx.x * 128 + threadIdx.x;
  Piece piece = {0, 0, 0, 0};
  if (i < read) piece = from[i];
  if (i < written) to[i] = piece;
}
)";

using bench::must;

struct Bench {
  bench::Report& report;
  CudaDriver& driver;
  Runtime& runtime;
  kiln::test::Stream stream;
  KernelId floor;

  /// Alternating rounds of all arms: what disturbs one disturbs the others.
  std::vector<std::vector<double>> times(std::vector<LaunchDescriptor>& launches) {
    std::vector<kiln::test::Graph> graphs;
    for (auto& launch : launches)
      graphs.push_back(driver.capture(stream, [&] {
        for (int i = 0; i < kLaunches; ++i) must(launch.launch(stream.handle()));
      }));
    std::vector<std::vector<double>> times(graphs.size());
    for (int round = -3; round < report.rounds(); ++round)
      for (std::size_t turn = 0; turn < graphs.size(); ++turn) {
        const std::size_t arm = round % 2 == 0 ? turn : graphs.size() - 1 - turn;
        const double time = driver.time(stream, [&] { graphs[arm].launch(stream); });
        if (round >= 0) times[arm].push_back(time / kLaunches);
      }
    return times;
  }

  void row(const Key& key, std::size_t tokens) {
    HostCall host = make_call(key, {.tokens = tokens, .pages = tokens / key.page_slots + 2}, 1);
    for (std::size_t token = 0; token < tokens; ++token) {  // every row written
      host.slots[token] = static_cast<std::int64_t>(token);
      host.positions[token] = static_cast<std::int64_t>(token * 2 % host.rope_positions + 1);
    }
    auto query = driver.upload(host.query);
    auto rows = driver.upload(host.rows);
    auto positions = driver.upload(host.positions);
    auto slots = driver.upload(host.slots);
    auto cos_sin = driver.upload(host.cos_sin);
    auto cache = driver.upload(host.cache);
    auto padded = driver.upload(host.padded_query);
    Arguments arguments = host.arguments();
    if (key.heads != 0) {
      arguments.query = query.pointer();
      arguments.padded_query = padded.pointer();
    }
    arguments.rows = rows.pointer();
    arguments.positions = positions.pointer<std::int64_t>();
    arguments.slots = slots.pointer<std::int64_t>();
    arguments.cos_sin = cos_sin.pointer<float>();
    arguments.cache = cache.pointer();

    const std::size_t read = tokens * (key.heads * 1024u + 1024u);
    const std::size_t written =
        tokens * ((key.heads != 0 ? 65536u : 0u) + dsv41::record_bytes(key.record));
    auto from = driver.buffer(read);
    auto to = driver.buffer(written);
    const auto pieces = static_cast<unsigned>(std::max(read, written) / 16);
    const KvInsert writer =
        must(KvInsert::create(runtime, {key.heads, key.record, key.page_slots, key.ratio}));
    std::vector<LaunchDescriptor> launches;
    for (const auto overlap : {Overlap::no, Overlap::yes}) {
      launches.push_back(must(writer.prepare(arguments, overlap)));
      launches.push_back(must(runtime.launches().prepare(must(runtime.get(floor)),
                                                         {.grid_blocks = {(pieces + 127) / 128},
                                                          .block_threads = {128},
                                                          .overlap_previous = overlap},
                                                         from.address(), to.address(),
                                                         static_cast<unsigned>(read / 16),
                                                         static_cast<unsigned>(written / 16))));
    }
    const auto measured = times(launches);
    const auto title = std::string(to_string(key.record)) + ", " + std::to_string(key.heads) +
                       " heads, " + std::to_string(tokens) + " tokens";
    const std::string copy = "copy of the same bytes";
    report.add(title, "us", measured[0], {copy, measured[1]});
    report.add(title + ", PDL", "us", measured[2], {copy, measured[3]});
    report.add(title + ", PDL: bytes moved", "GB/s",
               {static_cast<double>(read + written) / bench::quantile(measured[2], 0.5) / 1e3});
  }
};

int run(int argc, char** argv) {
  bench::Report report("dsv41_kv_insert", argc, argv, 25);
  auto driver = must(CudaDriver::open());
  auto runtime = must(Runtime::open({}));
  must(add_sources(runtime));
  must(runtime.add_source("floor.cu", kFloorSource));
  const auto floor = must(runtime.add({.name = "floor", .source = "floor.cu"}));
  Bench bench{report, driver, runtime, driver.stream(), floor};
  for (const Key& key : {Key{.heads = 16, .page_slots = 128}, Key{.heads = 64, .page_slots = 128},
                         Key{.page_slots = 128}, Key{.record = Record::nvfp4, .page_slots = 128}})
    for (const std::size_t tokens : {1u, 2u, 4u, 8u, 16u, 64u, 1024u, 8192u})
      bench.row(key, tokens);
  return report.finish();
}

}  // namespace
}  // namespace kiln::kernels::dsv41_kv_insert::test

int main(int argc, char** argv) {
  return kiln::kernels::dsv41_kv_insert::test::run(argc, argv);
}
