// The rows of the published benchmark of Kimi-K3 MLA as calls in device memory, for the benchmark
// and the tests of long rows: requests of one length each, over pages in no order.
//
// Threads: one. Lifetime: a DeviceRow must not outlive its cache.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernel_src/kimi_k3_mla/contract.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "support/cuda_driver.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

struct LongRow {
  const char* name;
  u32 heads;
  u64 batch, query, keys;

  u64 width() const { return (keys + kPageKeys - 1) / kPageKeys; }
  u64 pages() const { return batch * width(); }
  u64 tokens() const { return batch * query; }
  u64 rows() const { return tokens() * heads; }
};
/// The 27 published rows, then the two coverage rows, which are taken to be of 8 requests.
inline constexpr LongRow kLongRows[] = {
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

/// E4M3 codes of numbers that lie evenly from `low` to `high`.
inline std::vector<u8> random_codes(std::size_t count, float low, float high, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> numbers(low, high);
  std::vector<u8> codes(count);
  for (u8& code : codes) code = static_cast<u8>(e4m3_of_float(numbers(random)));
  return codes;
}
inline constexpr float kUnit = 1.7320508f;  // numbers from -kUnit to kUnit are of unit variance

/// Pages that rows share one after another: as many as the largest of `rows` has, filled with
/// `codes` over and over. Their count is no multiple of a key's, so that keys differ.
class LongCache {
 public:
  template <class Rows>
  LongCache(const kiln::test::CudaDriver& driver, const Rows& rows, const std::vector<u8>& codes)
      : pages_(most_pages(rows)), memory_(driver.buffer(pages_ * kPageKeys * kKeyDim)) {
    for (std::size_t at = 0; at < memory_.bytes(); at += codes.size())
      memory_.write(at, codes.data(), std::min(codes.size(), memory_.bytes() - at));
  }
  void write_key(u64 page, u64 key, const u8* codes) {
    memory_.write((page * kPageKeys + key) * kKeyDim, codes, kKeyDim);
  }
  const void* data() const { return memory_.pointer(); }
  u64 pages() const { return pages_; }

 private:
  template <class Rows>
  static u64 most_pages(const Rows& rows) {
    u64 most = 1;
    for (const LongRow& row : rows) most = std::max(most, row.pages());
    return most;
  }
  u64 pages_;
  kiln::test::DeviceBuffer memory_;
};

/// A row's call with its plan for an H200 of `sm_count` SMs; its output is full of NaN. The query
/// is of `codes`, a power of two of them.
struct DeviceRow {
  /// Errors  as check() and plan()
  static Result<DeviceRow> make(const kiln::test::CudaDriver& driver, const LongCache& cache,
                                const LongRow& row, const std::vector<u8>& codes, u32 sm_count,
                                u32 split = 0) {
    DeviceRow made(driver, cache, row, codes, split);
    KILN_TRY(made.call, check(made.arguments));
    KILN_TRY(made.plan, kimi_k3_mla::plan(made.call.problem(), sm_count, kH200));
    made.workspace = driver.buffer(workspace_bytes(made.plan));
    made.workspace.fill(0xff);
    made.arguments.workspace = made.workspace.pointer();
    made.arguments.workspace_bytes = made.workspace.bytes();
    return made;
  }

  /// The key that `request` has in place `key` becomes `codes`.
  void write_key(LongCache& cache, u64 request, u64 key, const u8* codes) const {
    const auto page = static_cast<u64>(tables[request * row.width() + key / kPageKeys]);
    cache.write_key(page, key % kPageKeys, codes);
  }

  LongRow row;
  std::vector<u8> query;
  std::vector<std::int32_t> tables;
  kiln::test::DeviceBuffer on_device_query, on_device_tables, on_device_lengths, output, workspace;
  Arguments arguments{};
  Call call{};
  Plan plan{};

 private:
  DeviceRow(const kiln::test::CudaDriver& driver, const LongCache& cache, const LongRow& of,
            const std::vector<u8>& codes, u32 split)
      : row(of),
        query(query_of(of, codes)),
        tables(shuffled(of.pages())),
        on_device_query(driver.upload(query)),
        on_device_tables(driver.upload(tables)),
        on_device_lengths(
            driver.upload(std::vector<std::int32_t>(of.batch, static_cast<std::int32_t>(of.keys)))),
        output(driver.buffer(of.rows() * kLatentDim * 2)),
        workspace(driver.buffer(0)) {
    output.fill(0xff);
    arguments = {
        .query = Tensor::dense(on_device_query.pointer(), DataType::e4m3,
                               {of.batch, of.query, of.heads, kKeyDim}),
        .cache = Tensor::dense(cache.data(), DataType::e4m3, {of.pages(), kPageKeys, kKeyDim}),
        .block_tables =
            Tensor::dense(on_device_tables.pointer(), DataType::int32, {of.batch, of.width()}),
        .lengths = Tensor::dense(on_device_lengths.pointer(), DataType::int32, {of.batch}),
        .output = OutputTensor::dense(output.pointer(), DataType::bfloat16,
                                      {of.batch, of.query, of.heads, kLatentDim}),
        .softmax_scale = 0.07216878f,
        .max_keys = of.keys,
        .split = split};
  }
  /// Another one for each row, so that no key which a test made for one is of use to the next.
  static std::vector<u8> query_of(const LongRow& row, const std::vector<u8>& codes) {
    const std::size_t first = row.rows() * 4099 + row.keys;
    std::vector<u8> made(row.rows() * kKeyDim);
    for (std::size_t at = 0; at < made.size(); ++at)
      made[at] = codes[(first + at * 7) & (codes.size() - 1)];
    return made;
  }
  static std::vector<std::int32_t> shuffled(u64 pages) {
    std::vector<std::int32_t> made(pages);
    std::iota(made.begin(), made.end(), 0);
    std::shuffle(made.begin(), made.end(), std::mt19937(2));
    return made;
  }
};

/// Packed rows, `step` apart and the last one.
inline std::vector<u32> every(u64 rows, u64 step) {
  std::vector<u32> made;
  for (u64 row = 0; row < rows; row += step) made.push_back(static_cast<u32>(row));
  if (rows != 0 && made.back() != rows - 1) made.push_back(static_cast<u32>(rows - 1));
  return made;
}

}  // namespace kiln::kernels::kimi_k3_mla::test
