// report = the first of the starts, then of each request's length and pages, that is outside of
// what a call may have. One block; a thread a start, a warp a request.
#include "kernel_src/kimi_k3_mla/args.hpp"

namespace kiln::kernels::kimi_k3_mla {

constexpr u32 kCheckThreads = 1024;
// Places in the order in which they are reported: a request's length is before its pages.
constexpr u64 kNowhere = ~u64{0};
__device__ __forceinline__ u64 place_of(u32 request, u32 after_length) {
  return u64{request} << 32 | after_length;
}
__device__ __forceinline__ void keep_first(u64& first, u64 place) {
  atomicMin(reinterpret_cast<unsigned long long*>(&first), static_cast<unsigned long long>(place));
}

// Allowed for starts[index], given that the one before is right.
struct Range {
  int least, most;
};
__device__ __forceinline__ Range range_of_start(const TableCheckArgs& args, u32 index) {
  if (index == 0) return {0, 0};
  const int before = args.query_starts[index - 1];
  const i64 furthest = i64{before} + args.query_len;
  return {before, static_cast<int>(furthest < args.tokens ? furthest : args.tokens)};
}

__device__ __forceinline__ void check_starts(const TableCheckArgs& args, u64& first) {
  for (u32 index = threadIdx.x; index <= args.batch; index += kCheckThreads) {
    const Range range = range_of_start(args, index);
    const int start = args.query_starts[index];
    if (start < range.least || start > range.most) keep_first(first, place_of(index, 0));
  }
}

__device__ __forceinline__ void check_request(const TableCheckArgs& args, u32 request, u64& first) {
  const int length = args.seq_lens[request];
  if (length < 0 || static_cast<u32>(length) > args.table_width * kPageKeys) {
    keep_first(first, place_of(request, 0));
    return;
  }
  const u32 pages = (static_cast<u32>(length) + kPageKeys - 1) / kPageKeys;
  const int* table = args.block_tables + request * args.table_stride;
#pragma unroll 4
  for (u32 i = threadIdx.x % 32; i < pages; i += 32)
    if (static_cast<u32>(table[i]) >= args.pages) keep_first(first, place_of(request, i + 1));
}

__device__ __forceinline__ void report(const TableCheckArgs& args, u64 place, bool of_starts) {
  TableReport& to = *args.report;
  ++to.checks;
  if (place == kNowhere || to.fault != TableFault::none) return;
  const u32 request = static_cast<u32>(place >> 32);
  const u32 after_length = static_cast<u32>(place);
  to.check = to.checks;
  to.request = request;
  to.position = 0;
  if (of_starts) {
    const Range range = range_of_start(args, request);
    to.fault = TableFault::start;
    to.value = args.query_starts[request];
    to.least = range.least;
    to.most = range.most;
  } else if (after_length == 0) {
    to.fault = TableFault::length;
    to.value = args.seq_lens[request];
    to.least = 0;
    to.most = static_cast<int>(args.table_width * kPageKeys);
  } else {
    to.fault = TableFault::page;
    to.position = after_length - 1;
    to.value = args.block_tables[request * args.table_stride + to.position];
    to.least = 0;
    to.most = static_cast<int>(args.pages - 1);
  }
}

}  // namespace kiln::kernels::kimi_k3_mla

extern "C" __global__ void __launch_bounds__(kiln::kernels::kimi_k3_mla::kCheckThreads)
    entry(const __grid_constant__ kiln::kernels::kimi_k3_mla::TableCheckArgs args) {
  using namespace kiln::kernels;
  using namespace kiln::kernels::kimi_k3_mla;
  __shared__ u64 first_start, first_of_requests;
  if (threadIdx.x == 0) first_start = first_of_requests = kNowhere;
  __syncthreads();
  if (args.query_starts != nullptr) check_starts(args, first_start);
  for (u32 request = threadIdx.x / 32; request < args.batch; request += kCheckThreads / 32)
    check_request(args, request, first_of_requests);
  __syncthreads();
  if (threadIdx.x != 0) return;
  const bool of_starts = first_start != kNowhere;
  report(args, of_starts ? first_start : first_of_requests, of_starts);
}
