// Kimi-K3 MLA on the device as plainly as it can be written, in fp32 with corrected sums: for rows
// that are too long for the reference in double, which it is tested against. It shares no product,
// page or mask with the kernels, and counts the mismatches where the outputs lie.
//
// Threads: one. Lifetime: the Runtime and the driver must outlive it.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_src/kimi_k3_mla/contract.hpp"
#include "kernel_src/kimi_k3_mla/reference.hpp"
#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

/// Of one row, as the device leaves them.
struct RowErrors {
  u32 mismatches = 0;
  u32 not_finite = 0;
  float largest = 0;
  float difference = 0;  // sum of squares
  float size = 0;        // of the reference, likewise
};

/// A block for a packed row: its scores and their maximum, then its values. A sum that runs over
/// keys carries what it lost in rounding.
inline constexpr std::string_view kReferenceName = "kimi_k3_mla_reference.cu";
inline constexpr std::string_view kReferenceSource = R"(
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/kimi_k3_mla/args.hpp"
#include "kernel_src/shared/bf16.hpp"

namespace {

using namespace kiln::kernels;
using namespace kiln::kernels::kimi_k3_mla;
using kiln::device::f16x2_of_e4m3x2;
using kiln::device::float_of_f16;

constexpr u32 kThreads = 512;  // a dim each in the end
constexpr u32 kWarps = kThreads / 32;
constexpr u32 kKeyWords = kKeyDim / 4;
constexpr u32 kOwnWords = (kKeyWords + 31) / 32;  // of a key, of a lane
constexpr u32 kGroups = 4;  // of threads that take every fourth key, four dims a thread

struct RowErrors {
  u32 mismatches, not_finite;
  float largest, difference, size;
};

struct Sum {
  float value, lost;
  __device__ void add(float a, float b) {
    const float term = fmaf(a, b, -lost);
    const float sum = value + term;
    lost = (sum - value) - term;
    value = sum;
  }
};

__device__ void numbers_of(float (&numbers)[4], u32 word) {
  const u32 low = f16x2_of_e4m3x2(word), high = f16x2_of_e4m3x2(word >> 16);
  numbers[0] = float_of_f16(low);
  numbers[1] = float_of_f16(low >> 16);
  numbers[2] = float_of_f16(high);
  numbers[3] = float_of_f16(high >> 16);
}

// Of all threads; `over` has room for one number of each.
template <class Join>
__device__ float joined(float mine, float* over, const Join& join) {
  __syncthreads();
  over[threadIdx.x] = mine;
  for (u32 half = kThreads / 2; half != 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) over[threadIdx.x] = join(over[threadIdx.x], over[threadIdx.x + half]);
  }
  __syncthreads();
  return over[0];
}

struct Row {
  const int* table;
  u32 keys;  // that it sees
};

__device__ Row row_of(const Args& args, u32 packed) {
  const u32 token = packed / args.heads;
  u32 request = 0;
  int begin, end;
  for (;; ++request) {
    begin = args.query_starts ? args.query_starts[request] : (int)(request * args.query_len);
    end = args.query_starts ? args.query_starts[request + 1] : begin + (int)args.query_len;
    if ((int)token < end) break;
  }
  const int room = (int)(args.table_width * kPageKeys);
  const int length = args.seq_lens[request] < room ? args.seq_lens[request] : room;
  const int keys = length - (end - begin) + ((int)token - begin) + 1;
  return {args.block_tables + request * args.table_stride, keys < 0 ? 0u : (u32)keys};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
entry(const Args args, const u8* cache, u64 page_stride, u64 row_stride, const u32* rows,
      float* all_scores, u64 most_keys, float* values, RowErrors* errors, float absolute,
      float relative) {
  __shared__ float over[kThreads];
  __shared__ float weights[kThreads];
  __shared__ float parts[kGroups][kLatentDim];
  const u32 packed = rows[blockIdx.x];
  const Row row = row_of(args, packed);
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* scores = all_scores + blockIdx.x * most_keys;

  float query[kOwnWords][4];
  const u32* query_words = reinterpret_cast<const u32*>(args.query + (u64)packed * kKeyDim);
  for (u32 i = 0; i < kOwnWords; ++i) {
    const u32 word = i * 32 + lane;
    numbers_of(query[i], word < kKeyWords ? query_words[word] : 0);
  }
  float largest = -float_of(kInfinityBits);
  for (u32 first = warp * kPageKeys; first < row.keys; first += kWarps * kPageKeys) {
    const u8* page = cache + (u64)row.table[first / kPageKeys] * page_stride;
    const u32 count = row.keys - first < kPageKeys ? row.keys - first : kPageKeys;
#pragma unroll 2
    for (u32 key = 0; key < count; ++key) {
      const u32* words = reinterpret_cast<const u32*>(page + key * row_stride);
      float sum = 0;
#pragma unroll
      for (u32 i = 0; i < kOwnWords; ++i) {
        const u32 word = i * 32 + lane;
        float numbers[4];
        numbers_of(numbers, word < kKeyWords ? words[word] : 0);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) sum = fmaf(query[i][j], numbers[j], sum);
      }
#pragma unroll
      for (int across = 16; across != 0; across /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, across);
      sum *= args.score_scale;
      largest = fmaxf(largest, sum);
      if (lane == 0) scores[first + key] = sum;
    }
  }
  largest = joined(largest, over, [](float a, float b) { return fmaxf(a, b); });

  const u32 group = threadIdx.x / (kThreads / kGroups);
  const u32 word = threadIdx.x % (kThreads / kGroups);  // of the latent part
  Sum all = {0, 0}, dims[4] = {};
  for (u32 first = 0; first < row.keys; first += kThreads) {
    const u32 count = row.keys - first < kThreads ? row.keys - first : kThreads;
    __syncthreads();
    if (threadIdx.x < count) {
      weights[threadIdx.x] = exp2f(scores[first + threadIdx.x] - largest);
      all.add(weights[threadIdx.x], 1);
    }
    __syncthreads();
#pragma unroll 4
    for (u32 key = group; key < count; key += kGroups) {
      const u32 page = (u32)row.table[(first + key) / kPageKeys];
      const u8* at = cache + page * page_stride + (first + key) % kPageKeys * row_stride;
      float numbers[4];
      numbers_of(numbers, reinterpret_cast<const u32*>(at)[word]);
#pragma unroll
      for (u32 j = 0; j < 4; ++j) dims[j].add(weights[key], numbers[j]);
    }
  }
  for (u32 j = 0; j < 4; ++j) parts[group][word * 4 + j] = dims[j].value;
  const auto plus = [](float a, float b) { return a + b; };
  const float sum = joined(all.value, over, plus);
  const u32 dim = threadIdx.x;
  const float part = (parts[0][dim] + parts[1][dim]) + (parts[2][dim] + parts[3][dim]);
  const float want = row.keys == 0 ? 0 : part / sum * args.output_scale;
  if (values) values[(u64)blockIdx.x * kLatentDim + dim] = want;
  if (!errors) return;

  const float got = float_of_bf16(args.output[(u64)packed * kLatentDim + dim]);
  const bool comparable = got == got && want == want;
  const float error = comparable ? fabsf(got - want) : 0;
  const bool differs = comparable ? !(error <= absolute + relative * fabsf(want))
                                  : (got == got) != (want == want);
  const u32 mismatches = (u32)__syncthreads_count(differs);
  const u32 not_finite = (u32)__syncthreads_count(!(fabsf(got) < float_of(kInfinityBits)));
  const float most = joined(error, over, [](float a, float b) { return fmaxf(a, b); });
  const float difference = joined(error * error, over, plus);
  const float size = joined(comparable ? want * want : 0, over, plus);
  if (threadIdx.x == 0)
    errors[blockIdx.x] = {mismatches, not_finite, most, difference, size};
}
)";

class DeviceReference {
 public:
  /// Registers it; a warmup compiles it. Requires the sources: see kernels::add_sources.
  static Result<DeviceReference> create(Runtime& runtime, const kiln::test::CudaDriver& driver) {
    if (Status added = runtime.add_source(kReferenceName, kReferenceSource); !added)
      return added.error();
    KILN_TRY(const KernelId id,
             runtime.add({.name = "reference", .source = std::string(kReferenceName)}));
    return DeviceReference(runtime, driver, id);
  }

  /// The outputs of `rows`, packed rows of `call`, whose pointers are the device's.
  Result<std::vector<float>> values_of(const Call& call, std::span<const u32> rows) const {
    std::vector<float> values;
    const Status ran = run(call, rows, 0, 0, [&](const auto& of_values, const auto&, auto count) {
      const auto some = of_values.template download<float>(0, count * kLatentDim);
      values.insert(values.end(), some.begin(), some.end());
    });
    if (!ran) return ran.error();
    return values;
  }

  /// How far what lies in the output is from it, in `rows`.
  Result<Errors> errors_of(const Call& call, std::span<const u32> rows, double absolute,
                           double relative) const {
    Errors errors;
    double difference = 0, size = 0;
    const Status ran =
        run(call, rows, static_cast<float>(absolute), static_cast<float>(relative),
            [&](const auto&, const auto& of_errors, auto count) {
              for (const RowErrors& row : of_errors.template download<RowErrors>(0, count)) {
                errors.mismatches += row.mismatches;
                errors.finite &= row.not_finite == 0;
                errors.largest = std::max(errors.largest, static_cast<double>(row.largest));
                difference += static_cast<double>(row.difference);
                size += static_cast<double>(row.size);
              }
            });
    if (!ran) return ran.error();
    errors.relative_l2 = difference == 0 ? 0 : std::sqrt(difference / size);
    return errors;
  }

 private:
  DeviceReference(Runtime& runtime, const kiln::test::CudaDriver& driver, KernelId id)
      : runtime_(&runtime), driver_(&driver), id_(id) {}

  /// Some rows at a time, since the scores of one take megabytes.
  template <class Take>
  Status run(const Call& call, std::span<const u32> rows, float absolute, float relative,
             const Take& take) const {
    if (rows.empty() || call.tokens == 0) return {};
    const auto kernel = runtime_->get(id_);
    if (!kernel) return kernel.status();
    constexpr std::size_t most_scores = std::size_t{1} << 28;
    const u64 most_keys = std::max<u64>(1, call.table_width * kPageKeys);
    const std::size_t at_once = std::clamp<std::size_t>(most_scores / most_keys, 1, rows.size());
    const auto scores = driver_->buffer(at_once * most_keys * sizeof(float));
    const auto values = driver_->buffer(at_once * kLatentDim * sizeof(float));
    const auto errors = driver_->buffer(at_once * sizeof(RowErrors));
    for (std::size_t done = 0; done < rows.size(); done += at_once) {
      const auto some = rows.subspan(done, std::min(at_once, rows.size() - done));
      const auto list = driver_->upload(std::vector<u32>(some.begin(), some.end()));
      auto launch = runtime_->launches().prepare(
          *kernel, {.grid_blocks = {static_cast<unsigned>(some.size())}, .block_threads = {512}},
          args_of(call, Plan{}), call.cache, call.page_stride_bytes, call.row_stride_bytes,
          list.address(), scores.address(), most_keys, values.address(), errors.address(), absolute,
          relative);
      if (!launch) return launch.status();
      if (Status launched = launch->launch(nullptr); !launched) return launched;
      take(values, errors, some.size());  // a copy, which waits
    }
    return {};
  }

  Runtime* runtime_;
  const kiln::test::CudaDriver* driver_;
  KernelId id_;
};

}  // namespace kiln::kernels::kimi_k3_mla::test
