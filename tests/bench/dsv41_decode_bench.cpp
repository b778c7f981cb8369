// Device time of the decode programs: swap-AB beside the padded-head one it is to beat, and beside
// a kernel that only gathers the same records and writes as many bytes. Alone and as a step (cache
// writer, then attention), chained in a replayed graph with warm L2, and after a flush of L2. Needs
// a GPU.
#include <optional>
#include <string>
#include <vector>

#include "kernel_src/dsv41_decode/launch.hpp"
#include "kernel_src/dsv41_kv_insert/launch.hpp"
#include "kernel_src/kernels.hpp"
#include "support/cuda_driver.hpp"
#include "tests/bench/flush.hpp"
#include "tests/bench/report.hpp"
#include "tests/kernel_src/dsv41_decode_inputs.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

using bench::must;
using kiln::test::CudaDriver;
using kiln::test::DeviceBuffer;

constexpr int kLaunches = 20;
constexpr int kColdLaunches = 4;

// A cluster a token, as swap-AB's: each block reads its records, meets the others, and writes its
// share of the output.
constexpr std::string_view kFloorSource = R"(
struct alignas(16) Piece { unsigned x, y, z, w; };
struct List { const char* cache; const int* slots; unsigned width, record, page_slots; unsigned long long page_bytes; };
extern "C" __global__ void __launch_bounds__(512)
entry(List swa, List compressed, Piece* output, unsigned token_pieces) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const bool first = blockIdx.x < 2;
  const List& list = first ? swa : compressed;
  const unsigned begin = first ? blockIdx.x * 64 : (blockIdx.x - 2) * 128;
  const unsigned pieces = list.record / 16;
  Piece sum = {0, 0, 0, 0};
  for (unsigned i = threadIdx.x; i < (first ? 64 : 128) * pieces; i += 512) {
    const unsigned slot = list.slots[blockIdx.y * list.width + begin + i / pieces];
    const Piece piece = *reinterpret_cast<const Piece*>(
        list.cache + slot / list.page_slots * list.page_bytes +
        slot % list.page_slots * list.record + i % pieces * 16);
    sum.x ^= piece.x; sum.y ^= piece.y; sum.z ^= piece.z; sum.w ^= piece.w;
  }
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
  const unsigned i = blockIdx.x * 512 + threadIdx.x;
  if (i < token_pieces) output[blockIdx.y * 2048 + i] = sum;
  else if (sum.x == 0x12345678 && sum.y == 0x9abcdef0) output[blockIdx.y * 2048] = sum;
}
)";
struct FloorList {
  const void* cache;
  const std::int32_t* slots;
  u32 width, record, page_slots;
  std::uint64_t page_bytes;
};

using Launches = std::vector<LaunchDescriptor*>;

class Bench {
 public:
  Bench(bench::Report& report, CudaDriver& driver, Runtime& runtime)
      : report_(&report),
        driver_(&driver),
        runtime_(&runtime),
        stream_(driver.stream()),
        flushed_(driver.buffer(bench::kFlushBytes)) {
    must(runtime.add_source("floor.cu", kFloorSource));
    floor_ = must(runtime.add({.name = "floor", .source = "floor.cu"}));
    flush_ = bench::prepare_flush(runtime, flushed_.address());
  }

  void row(const Key& key, std::size_t tokens) {
    HostCall host = make_call({.key = key, .tokens = tokens}, 1);
    for (auto* lengths : {&host.swa.lengths, &host.compressed.lengths})
      for (auto& length : *lengths)
        length = static_cast<std::int32_t>(lengths == &host.swa.lengths ? key.swa_slots
                                                                        : key.compressed_slots);
    std::vector<DeviceBuffer> buffers;
    const auto upload = [&](const auto& values) -> DeviceBuffer& {
      return buffers.emplace_back(driver_->upload(values));
    };
    Arguments arguments = host.arguments();
    arguments.query = upload(host.query).pointer();
    arguments.positions = upload(host.positions).pointer<std::int64_t>();
    arguments.cos_sin = upload(host.cos_sin).pointer<float>();
    arguments.sinks = upload(host.sinks).pointer<float>();
    arguments.swa_cache = upload(host.swa.cache).pointer();
    arguments.swa_slots = upload(host.swa.slots).pointer<std::int32_t>();
    arguments.swa_lengths = upload(host.swa.lengths).pointer<std::int32_t>();
    arguments.compressed_cache = upload(host.compressed.cache).pointer();
    arguments.compressed_slots = upload(host.compressed.slots).pointer<std::int32_t>();
    arguments.compressed_lengths = upload(host.compressed.lengths).pointer<std::int32_t>();
    arguments.output = upload(host.output).pointer();
    arguments.output_scales = upload(host.output_scales).pointer();

    auto mega = must(must(MegaDecode::create(*runtime_, key)).prepare(arguments, Overlap::yes));
    auto insert = insert_of(key, tokens, arguments, upload);
    std::optional<LaunchDescriptor> swapab;
    if (swapab::check_key(key))
      swapab = must(must(SwapabDecode::create(*runtime_, key)).prepare(arguments, Overlap::yes));
    auto floor = floor_of(key, tokens, arguments);

    const std::string title = std::to_string(key.heads) + " heads, " +
                              (key.record == Record::fp8 ? "fp8, " : "nvfp4, ") +
                              std::to_string(tokens) + " tokens";
    std::vector<Launches> arms = {{&mega}, {&floor}, {&insert, &mega}};
    if (swapab) arms.insert(arms.end(), {{&*swapab}, {&insert, &*swapab}});
    const auto warm = times(arms, kLaunches, false);
    const auto cold = times(arms, kColdLaunches, true);
    report_->add(title + ": padded heads", "us", warm[0], {"gather", warm[1]});
    if (swapab) {
      report_->add(title + ": swap-AB", "us", warm[3], {"padded heads", warm[0]});
      report_->add(title + ": step", "us", warm[4], {"padded heads", warm[2]});
      report_->add(title + ": swap-AB, cold L2", "us", cold[3], {"padded heads", cold[0]});
      report_->add(title + ": step, cold L2", "us", cold[4], {"padded heads", cold[2]});
    }
  }

 private:
  /// The cache writer of the step: pads the query, and writes one row a token.
  template <class Upload>
  LaunchDescriptor insert_of(const Key& key, std::size_t tokens, const Arguments& decode,
                             const Upload& upload) {
    const dsv41_kv_insert::Problem problem{key.heads, Record::fp8, key.swa_page_slots, 1};
    const std::vector<u16> rows(tokens * dsv41::kHeadDim, u16{0x3f00});
    const std::vector<u16> query(rows.size() * key.heads, u16{0x3f00});
    std::vector<std::int64_t> slots(tokens);
    for (std::size_t i = 0; i < tokens; ++i) slots[i] = static_cast<std::int64_t>(i);
    dsv41_kv_insert::Arguments arguments;
    arguments.query = upload(query).pointer();
    arguments.padded_query = const_cast<void*>(decode.query);
    arguments.rows = upload(rows).pointer();
    arguments.positions = decode.positions;
    arguments.slots = upload(slots).template pointer<std::int64_t>();
    arguments.cos_sin = decode.cos_sin;
    arguments.cache = const_cast<void*>(decode.swa_cache);
    arguments.page_stride_bytes = decode.swa_page_stride_bytes;
    arguments.row_stride_bytes = decode.swa_row_stride_bytes;
    arguments.pages = decode.swa_pages;
    arguments.rope_positions = decode.rope_positions;
    arguments.tokens = tokens;
    return must(must(dsv41_kv_insert::KvInsert::create(*runtime_, problem))
                    .prepare(arguments, Overlap::yes));
  }

  LaunchDescriptor floor_of(const Key& key, std::size_t tokens, const Arguments& arguments) {
    const FloorList swa{arguments.swa_cache, arguments.swa_slots,
                        key.swa_slots,       528,
                        key.swa_page_slots,  arguments.swa_page_stride_bytes};
    const FloorList compressed{arguments.compressed_cache,
                               arguments.compressed_slots,
                               key.compressed_slots,
                               dsv41::record_bytes(key.record),
                               key.page_slots,
                               arguments.compressed_page_stride_bytes};
    return must(runtime_->launches().prepare(must(runtime_->get(floor_)),
                                             {.grid_blocks = {6, static_cast<unsigned>(tokens)},
                                              .block_threads = {512},
                                              .cluster_blocks = {6},
                                              .overlap_previous = Overlap::yes},
                                             swa, compressed, arguments.output,
                                             static_cast<u32>(key.heads * dsv41::kHeadDim / 16)));
  }

  /// Microseconds of each arm's launches; the arms take turns. `cold`: less what the flush before
  /// each takes.
  std::vector<std::vector<double>> times(const std::vector<Launches>& arms, int launches,
                                         bool cold) {
    std::vector<kiln::test::Graph> graphs;
    const auto capture = [&](const Launches& arm) {
      graphs.push_back(driver_->capture(stream_, [&] {
        for (int i = 0; i < launches; ++i) {
          if (cold) must(flush_.launch(stream_.handle()));
          for (auto* launch : arm) must(launch->launch(stream_.handle()));
        }
      }));
    };
    for (const Launches& arm : arms) capture(arm);
    if (cold) capture({});
    std::vector<std::vector<double>> taken(arms.size());
    for (int round = -3; round < report_->rounds(); ++round) {
      std::vector<double> of_round(graphs.size());
      for (std::size_t turn = 0; turn < graphs.size(); ++turn) {
        const std::size_t arm = round % 2 == 0 ? turn : graphs.size() - 1 - turn;
        of_round[arm] = driver_->time(stream_, [&] { graphs[arm].launch(stream_); }) / launches;
      }
      for (std::size_t arm = 0; arm < arms.size() && round >= 0; ++arm)
        taken[arm].push_back(of_round[arm] - (cold ? of_round.back() : 0));
    }
    return taken;
  }

  bench::Report* report_;
  CudaDriver* driver_;
  Runtime* runtime_;
  kiln::test::Stream stream_;
  DeviceBuffer flushed_;
  KernelId floor_{};
  LaunchDescriptor flush_{};
};

int run(int argc, char** argv) {
  bench::Report report("dsv41_decode", argc, argv, 15);
  auto driver = must(CudaDriver::open());
  auto runtime = must(Runtime::open({}));
  must(add_sources(runtime));
  Bench bench(report, driver, runtime);
  for (const u32 heads : {16u, 32u, 64u})
    for (const Record record : {Record::fp8, Record::nvfp4})
      for (const std::size_t tokens : {1u, 2u, 4u, 8u, 15u, 16u, 22u, 23u, 30u, 31u, 32u, 44u, 64u})
        bench.row({.heads = heads, .record = record}, tokens);
  return report.finish();
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test

int main(int argc, char** argv) {
  return kiln::kernels::dsv41_decode::test::run(argc, argv);
}
