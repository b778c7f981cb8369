// Device time of Kimi-K3 MLA over an FP8 paged cache: the rows of the published benchmark, each
// call a replayed graph after a flush of L2, beside the two ideals of this device: reading every
// key once, at the rate that a plain reading kernel reaches in the same run, and the products at
// the matrix units' rate. Needs a GPU.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "kernel_src/kimi_k3_mla/launch.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "support/cuda_driver.hpp"
#include "tests/bench/flush.hpp"
#include "tests/bench/report.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

using bench::must;
using kiln::test::CudaDriver;
using kiln::test::DeviceBuffer;

constexpr double kDenseFp8PerSecond = 1979e12;  // data sheet of the H200, dense E4M3

constexpr std::string_view kReadSource = R"(
struct alignas(16) Piece { unsigned x, y, z, w; };
extern "C" __global__ void __launch_bounds__(512)
entry(const Piece* from, unsigned long long pieces, Piece* to) {
  const unsigned long long step = gridDim.x * 512ull;
  Piece sum = {0, 0, 0, 0};
  unsigned long long i = blockIdx.x * 512ull + threadIdx.x;
  for (; i + 7 * step < pieces; i += 8 * step) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const Piece piece = from[i + j * step];
      sum.x ^= piece.x; sum.y ^= piece.y; sum.z ^= piece.z; sum.w ^= piece.w;
    }
  }
  if (sum.x == 0x12345678 && sum.y == 0x9abcdef0) *to = sum;
}
)";

struct Row {
  const char* name;
  u32 heads;
  u64 batch, query, keys;
};
constexpr Row kRows[] = {
    {"trace_h12_b1", 12, 1, 1, 76800},
    {"trace_h12_b2", 12, 2, 1, 77699},
    {"trace_h12_b3", 12, 3, 1, 261120},
    {"trace_h12_b4", 12, 4, 1, 268800},
    {"trace_h12_b5", 12, 5, 1, 276480},
    {"trace_h12_b6", 12, 6, 1, 467751},
    {"trace_h12_b7", 12, 7, 1, 299613},
    {"trace_h12_b8", 12, 8, 1, 342305},
    {"trace_h12_b9", 12, 9, 1, 348705},
    {"trace_h12_b10", 12, 10, 1, 474166},
    {"trace_h12_b11", 12, 11, 1, 474405},
    {"mirror_h96_b1", 96, 1, 1, 76800},
    {"mirror_h96_b2", 96, 2, 1, 77699},
    {"mirror_h96_b6", 96, 6, 1, 467751},
    {"mirror_h96_b7", 96, 7, 1, 299613},
    {"mirror_h96_b8", 96, 8, 1, 342305},
    {"mtp_h12_b8_q2", 12, 8, 2, 342305},
    {"mtp_h12_b8_q4", 12, 8, 4, 342305},
    {"mtp_h12_b8_q8", 12, 8, 8, 342305},
    {"mtp_h96_b8_q2", 96, 8, 2, 342305},
    {"mtp_h96_b8_q4", 96, 8, 4, 342305},
    {"mtp_h96_b8_q8", 96, 8, 8, 342305},
    {"prefill_h12_b1_q2048", 12, 1, 2048, 131072},
    {"prefill_h12_b2_q512", 12, 2, 512, 32768},
    {"prefill_h12_b4_q1024", 12, 4, 1024, 8192},
    {"prefill_h96_b1_q2048", 96, 1, 2048, 131072},
    {"prefill_h96_b2_q512", 96, 2, 512, 32768},
    {"mtp_h12_fixed_q5", 12, 8, 5, 342305},
    {"mtp_h96_fixed_q8_kv8000", 96, 8, 8, 8000},
};

/// Uniform numbers of unit variance as E4M3.
std::vector<u8> random_codes(std::size_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> numbers(-1.7320508f, 1.7320508f);
  std::vector<u8> codes(count);
  for (u8& code : codes) code = static_cast<u8>(e4m3_of_float(numbers(random)));
  return codes;
}

class Bench {
 public:
  Bench(bench::Report& report, CudaDriver& driver, Runtime& runtime)
      : report_(&report),
        driver_(&driver),
        runtime_(&runtime),
        stream_(driver.stream()),
        flushed_(driver.buffer(bench::kFlushBytes)),
        codes_(random_codes(std::size_t{1} << 24)),
        attention_(must(Attention::create(runtime, {.attend = {{16}, {32}, {48}, {64}, {96}, {128}},
                                                    .reduce = {{0}, {1}, {2}, {4}}}))) {
    must(runtime.add_source("read.cu", kReadSource));
    const auto read = must(runtime.add({.name = "read", .source = "read.cu"}));
    must(runtime.warmup());
    flush_ = bench::prepare_flush(runtime, flushed_.address());
    read_ = must(runtime.get(read));
    sm_count_ = must(runtime.device()).sm_count;
  }

  /// Bytes a second that a kernel reads which does nothing else, over 2 GiB.
  void measure_reading() {
    const std::size_t bytes = std::size_t{2} << 30;
    const auto memory = driver_->buffer(bytes);
    auto launch = must(runtime_->launches().prepare(
        read_, {.grid_blocks = {sm_count_ * 4}, .block_threads = {512}}, memory.address(),
        static_cast<u64>(bytes / 16), flushed_.address()));
    const auto taken = times([&] { must(launch.launch(stream_.handle())); }, false);
    std::vector<double> rates;
    for (const double microseconds : taken)
      rates.push_back(static_cast<double>(bytes) / microseconds / 1e6);
    read_rate_ = bench::quantile(rates, 0.5) * 1e12;
    report_->add("reading 2 GiB", "TB/s", rates, {});
  }

  void row(const Row& row) {
    const u64 width = (row.keys + kPageKeys - 1) / kPageKeys;
    const u64 pages = width * row.batch;
    const u64 tokens = row.batch * row.query;
    auto cache = driver_->buffer(pages * kPageKeys * kKeyDim);
    for (std::size_t at = 0; at < cache.bytes(); at += codes_.size())
      cache.write(at, codes_.data(), std::min(codes_.size(), cache.bytes() - at));
    std::vector<u8> query(tokens * row.heads * kKeyDim);
    for (std::size_t at = 0; at < query.size(); ++at) query[at] = codes_[at * 7 % codes_.size()];
    std::vector<std::int32_t> tables(pages),
        lengths(row.batch, static_cast<std::int32_t>(row.keys));
    for (std::size_t i = 0; i < pages; ++i) tables[i] = static_cast<std::int32_t>(i);
    std::shuffle(tables.begin(), tables.end(), std::mt19937(2));

    const Plan plan = must(kimi_k3_mla::plan(
        {.heads = row.heads, .batch = row.batch, .query = row.query, .keys = row.keys}, sm_count_,
        kH200));
    const auto on_device_query = driver_->upload(query);
    const auto on_device_tables = driver_->upload(tables);
    const auto on_device_lengths = driver_->upload(lengths);
    const auto output = driver_->buffer(tokens * row.heads * kLatentDim * 2);
    const auto workspace = driver_->buffer(workspace_bytes(plan));
    Arguments arguments{
        .query = Tensor::dense(on_device_query.pointer(), DataType::e4m3,
                               {row.batch, row.query, row.heads, kKeyDim}),
        .cache = Tensor::dense(cache.pointer(), DataType::e4m3, {pages, kPageKeys, kKeyDim}),
        .block_tables =
            Tensor::dense(on_device_tables.pointer(), DataType::int32, {row.batch, width}),
        .lengths = Tensor::dense(on_device_lengths.pointer(), DataType::int32, {row.batch}),
        .output = OutputTensor::dense(output.pointer(), DataType::bfloat16,
                                      {row.batch, row.query, row.heads, kLatentDim}),
        .workspace = workspace.pointer(),
        .workspace_bytes = workspace.bytes(),
        .softmax_scale = 0.07216878f,
        .max_keys = row.keys};
    auto launches = must(attention_.prepare(arguments, plan));
    const auto taken = times([&] { must(launches.launch(stream_.handle())); }, true);

    const double memory = static_cast<double>(row.batch * row.keys * kKeyDim) / read_rate_ * 1e6;
    // A token sees half of its own step's tokens.
    const double pairs = static_cast<double>(tokens) * row.heads *
                         (static_cast<double>(row.keys) - static_cast<double>(row.query - 1) / 2);
    const double products = pairs * 2 * (kKeyDim + kLatentDim) / kDenseFp8PerSecond * 1e6;
    report_->add(
        std::string(row.name) + ": row tile " + std::to_string(plan.row_tile) + ", " +
            std::to_string(plan.num_split) + " splits, " + std::string(to_string(plan.reducer)),
        "us", taken, {memory >= products ? "memory" : "products", {std::max(memory, products)}});
  }

 private:
  /// Microseconds of a launch in a replayed graph; `cold`: less what the flush before it takes.
  template <class Work>
  std::vector<double> times(const Work& work, bool cold) {
    const auto capture = [&](bool with_work) {
      return driver_->capture(stream_, [&] {
        if (cold) must(flush_.launch(stream_.handle()));
        if (with_work) work();
      });
    };
    std::vector<kiln::test::Graph> graphs;
    graphs.push_back(capture(true));
    if (cold) graphs.push_back(capture(false));
    std::vector<double> taken;
    for (int round = -3; round < report_->rounds(); ++round) {
      std::vector<double> of_round;
      for (const auto& graph : graphs)
        of_round.push_back(driver_->time(stream_, [&] { graph.launch(stream_); }));
      if (round >= 0) taken.push_back(of_round[0] - (cold ? of_round[1] : 0));
    }
    return taken;
  }

  bench::Report* report_;
  CudaDriver* driver_;
  Runtime* runtime_;
  kiln::test::Stream stream_;
  DeviceBuffer flushed_;
  std::vector<u8> codes_;
  Attention attention_;
  LaunchDescriptor flush_{};
  Kernel read_{};
  u32 sm_count_ = 0;
  double read_rate_ = 1;
};

int run(int argc, char** argv) {
  bench::Report report("kimi_k3_mla", argc, argv, 11);
  auto driver = must(CudaDriver::open());
  auto runtime = must(Runtime::open({}));
  must(add_sources(runtime));
  Bench bench(report, driver, runtime);
  bench.measure_reading();
  for (const Row& row : kRows) bench.row(row);
  return report.finish();
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test

int main(int argc, char** argv) {
  return kiln::kernels::kimi_k3_mla::test::run(argc, argv);
}
