// Device time of Kimi-K3 MLA over an FP8 paged cache: the rows of the published benchmark, each
// call in a replayed graph between two events (1.3 us by themselves), behind other memory being
// written and yet other read, so that L2 has nothing of the call's and nothing to write back;
// beside the two ideals of this device: reading every key once, at the rate that a plain reading
// kernel reaches in the same run, and the products at the matrix units' rate. Some rows of each
// output are held against the reference in fp32 on the device when they were timed: a wrong one
// refuses the row and fails the run. Needs a GPU.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "kernel_src/kimi_k3_mla/launch.hpp"
#include "support/cuda_driver.hpp"
#include "tests/bench/flush.hpp"
#include "tests/bench/report.hpp"
#include "tests/gpu/kimi_k3_mla_reference.hpp"
#include "tests/gpu/kimi_k3_mla_rows.hpp"

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

class Bench {
 public:
  Bench(bench::Report& report, CudaDriver& driver, Runtime& runtime)
      : report_(&report),
        driver_(&driver),
        runtime_(&runtime),
        stream_(driver.stream()),
        flushed_(driver.buffer(bench::kFlushBytes)),
        other_(driver.buffer(bench::kFlushBytes)),
        codes_(random_codes(std::size_t{1} << 24, -kUnit, kUnit, 1)),
        cache_(driver, kLongRows, codes_),
        reference_(must(DeviceReference::create(runtime, driver))),
        attention_(must(Attention::create(runtime, {.attend = {{16}, {32}, {48}, {64}, {96}, {128}},
                                                    .reduce = {{0}, {1}, {2}, {4}}}))) {
    must(runtime.add_source("read.cu", kReadSource));
    const auto read = must(runtime.add({.name = "read", .source = "read.cu"}));
    must(runtime.warmup());
    flush_ = bench::prepare_flush(runtime, flushed_.address());
    read_ = must(runtime.get(read));
    sm_count_ = must(runtime.device()).sm_count;
    clean_ = prepare_reading(other_.address(), bench::kFlushBytes);
  }

  /// Bytes a second that a kernel reads which does nothing else, over 2 GiB.
  void measure_reading() {
    const std::size_t bytes = std::size_t{2} << 30;
    const auto memory = driver_->buffer(bytes);
    auto launch = prepare_reading(memory.address(), bytes);
    std::vector<double> rates;
    for (const double microseconds : times([&] { must(launch.launch(stream_.handle())); }))
      rates.push_back(static_cast<double>(bytes) / microseconds / 1e6);
    read_rate_ = bench::quantile(rates, 0.5) * 1e12;
    report_->add("reading 2 GiB", "TB/s", rates, {});
  }

  void row(const LongRow& row) {
    const auto made = must(DeviceRow::make(*driver_, cache_, row, codes_, sm_count_));
    auto launches = must(attention_.prepare(made.arguments, made.plan));
    const auto taken = times([&] { must(launches.launch(stream_.handle())); });
    if (!is_right(made)) return;

    const double memory = static_cast<double>(row.batch * row.keys * kKeyDim) / read_rate_ * 1e6;
    // A token sees half of its own step's tokens.
    const double pairs = static_cast<double>(row.rows()) *
                         (static_cast<double>(row.keys) - static_cast<double>(row.query - 1) / 2);
    const double products = pairs * 2 * (kKeyDim + kLatentDim) / kDenseFp8PerSecond * 1e6;
    report_->add(std::string(row.name) + ": row tile " + std::to_string(made.plan.row_tile) + ", " +
                     std::to_string(made.plan.num_split) + " splits, " +
                     std::string(to_string(made.plan.reducer)),
                 "us", taken,
                 {memory >= products ? "memory" : "products", {std::max(memory, products)}});
  }

  bool all_right() const { return all_right_; }

 private:
  /// What the last replay left, in some rows: by the contract, and on the whole.
  bool is_right(const DeviceRow& row) {
    constexpr u64 rows_checked = 32;
    // An odd step, so that it meets every head.
    const auto rows = every(row.row.rows(), row.row.rows() / rows_checked | 1);
    const Errors errors = must(reference_.errors_of(row.call, rows, 0.01, 0.02));
    if (errors.mismatches == 0 && errors.finite && errors.relative_l2 <= 0.05) return true;
    std::fprintf(stderr,
                 "%s: refused: of %zu rows %llu elements are more than 0.01 + 2 %% off, the "
                 "largest by %.4f; relative L2 %.4f, 0.05 at most; %s\n",
                 row.row.name, rows.size(), static_cast<unsigned long long>(errors.mismatches),
                 errors.largest, errors.relative_l2,
                 errors.finite ? "all finite" : "not all finite");
    return all_right_ = false;
  }

  LaunchDescriptor prepare_reading(std::uint64_t memory, std::size_t bytes) {
    return must(runtime_->launches().prepare(
        read_, {.grid_blocks = {sm_count_ * 4}, .block_threads = {512}}, memory,
        static_cast<u64>(bytes / 16), flushed_.address()));
  }

  /// Microseconds of `work` in a replayed graph, over a cold L2.
  template <class Work>
  std::vector<double> times(const Work& work) {
    const kiln::test::Interval interval(driver_->shared_functions());
    const auto graph = driver_->capture(stream_, [&] {
      must(flush_.launch(stream_.handle()));
      must(clean_.launch(stream_.handle()));
      interval.around(stream_, work);
    });
    std::vector<double> taken;
    for (int round = -3; round < report_->rounds(); ++round) {
      graph.launch(stream_);
      const double microseconds = interval.microseconds();
      if (round >= 0) taken.push_back(microseconds);
    }
    return taken;
  }

  bench::Report* report_;
  CudaDriver* driver_;
  Runtime* runtime_;
  kiln::test::Stream stream_;
  DeviceBuffer flushed_;
  DeviceBuffer other_;
  std::vector<u8> codes_;
  LongCache cache_;
  DeviceReference reference_;
  Attention attention_;
  LaunchDescriptor flush_{};
  LaunchDescriptor clean_{};
  Kernel read_{};
  u32 sm_count_ = 0;
  double read_rate_ = 1;
  bool all_right_ = true;
};

int run(int argc, char** argv) {
  bench::Report report("kimi_k3_mla", argc, argv, 11);
  auto driver = must(CudaDriver::open());
  auto runtime = must(Runtime::open({}));
  must(add_sources(runtime));
  Bench bench(report, driver, runtime);
  bench.measure_reading();
  for (const LongRow& row : kLongRows) bench.row(row);
  const int written = report.finish();
  return bench.all_right() ? written : 1;
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test

int main(int argc, char** argv) {
  return kiln::kernels::kimi_k3_mla::test::run(argc, argv);
}
