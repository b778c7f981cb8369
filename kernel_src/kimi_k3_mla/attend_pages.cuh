// Brings pages of the cache, and the query.
#pragma once

#include "kernel_src/device/e4m3_products.cuh"
#include "kernel_src/device/ptx_cache_policy.cuh"
#include "kernel_src/device/ptx_memory.cuh"
#include "kernel_src/device/ptx_tensor_map.cuh"
#include "kernel_src/kimi_k3_mla/attend_common.cuh"

namespace kiln::kernels::kimi_k3_mla::attend {

// Pages that are asked for and not there yet, at most. Two of each SM keep the memory busy; what
// more does is wait in line, and drive more of what others left in L2 out of it.
constexpr u32 kUnderWay = kBlocks == 1 ? 2 : kStages;
// A block with no more pages than this has L2 drop them first, if nobody else reads them: so little
// is read in all that what others left there need not go. For long requests that is slower where
// much of it has yet to be written back.
constexpr int kFewPages = 40;

// By the warp that brings pages: asks for page numbers before it is known which are the block's
// own. The blocks of a request share them out.
__device__ __forceinline__ void ask_for_table(const Args& args, const Item& item) {
  const u32 first = (item.split * 32 + threadIdx.x % 32) * 32;
  if (first < args.table_width)
    device::prefetch_to_l2(args.block_tables + item.request * args.table_stride + first);
}

// By one thread. Of a pair each block brings two of the four parts to both, and the rope parts of
// every other page.
__device__ __forceinline__ void bring_page(const TensorMap& latent, const TensorMap& rope,
                                           const Turn& turn, int page, bool even, u64 policy) {
  const u32 full = full_at(turn.stage);
  const u32 to = page_at(turn.stage);
  wait_for(empty_at(turn.stage), turn.parity ^ 1);
  device::barrier_arrive_expect(full, kPageBytes);
  if constexpr (kBlocks == 1) {
#pragma unroll
    for (u32 part = 0; part < kParts; ++part)
      device::load_box_3d(to + part * kPartBytes, &latent, static_cast<int>(part * 128), 0, page,
                          full, policy);
    device::load_box_3d(to + kParts * kPartBytes, &rope, kLatentDim, 0, page, full, policy);
  } else {
    constexpr u16 both = 3;
    const u32 rank = device::cluster_rank();
#pragma unroll
    for (u32 i = 0; i < kParts / 2; ++i) {
      const u32 part = rank * (kParts / 2) + i;
      device::load_box_3d_to(both, to + part * kPartBytes, &latent, static_cast<int>(part * 128), 0,
                             page, full, policy);
    }
    if (even == (rank == 0))
      device::load_box_3d_to(both, to + kParts * kPartBytes, &rope, kLatentDim, 0, page, full,
                             policy);
  }
}

// By one warp. Page numbers that are none bring zeros: the map knows how many pages there are.
__device__ __forceinline__ void bring_pages(const TensorMap& latent, const TensorMap& rope,
                                            const Args& args, const Item& item) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int end = item.pages_end();
  const int* table = args.block_tables + item.request * args.table_stride;
  int at = item.first_tile * 2;
  int ahead = at + lane < end ? table[at + lane] : 0;
  const u64 policy = args.row_tiles == 1 && end - at <= kFewPages ? device::drop_first()
                                                                  : device::as_without_policy();
  const int first_waits = at + static_cast<int>(kUnderWay);
  Turn turn, before;  // the page that is asked for, and the last one that must be there by then
  for (; at < end; at += 32) {
    const int pages = ahead;
    const int next = at + 32 + lane;
    ahead = next < end ? table[next] : 0;
    const int count = smaller(32, end - at);
    for (int i = 0; i < count; ++i) {
      const int page = __shfl_sync(0xffffffffu, pages, i);
      if (kUnderWay < kStages && at + i >= first_waits) {
        if (lane == 0) wait_for(full_at(before.stage), before.parity);
        before.next();
      }
      if (lane == 0) bring_page(latent, rope, turn, page, i % 2 == 0, policy);
      turn.next();
    }
  }
}

// The block's rows of the query, zeros where it has none, on their way through the consumers'
// registers.
struct Query {
  static constexpr u32 kPieces = kKeyDim / 16;  // of a row
  static constexpr u32 kOfThread = (kColumns * kPieces + kConsumerThreads - 1) / kConsumerThreads;
  device::Words4 words[kOfThread];
};
__device__ __forceinline__ void load_query(Query& query, const Args& args, const Item& item) {
  const u8* from = args.query + u64{item.query_row(args)} * kKeyDim;
#pragma unroll
  for (u32 n = 0; n < Query::kOfThread; ++n) {
    const u32 i = threadIdx.x + n * kConsumerThreads;
    const u32 row = i / Query::kPieces;
    query.words[n] = {};
    if (row < kColumns && item.first_row + static_cast<int>(row) < item.rows)
      query.words[n] = device::load_16(from + i * 16);
  }
}
__device__ __forceinline__ void keep_query(const Query& query) {
#pragma unroll
  for (u32 n = 0; n < Query::kOfThread; ++n) {
    const u32 i = threadIdx.x + n * kConsumerThreads;
    const u32 row = i / Query::kPieces;
    const u32 piece = i % Query::kPieces;
    const u32 part = piece / 8;
    const u32 place =
        part < kParts
            ? part * (kColumns * 128) + row / 8 * 1024 + device::in_rows_of_128(row, piece % 8)
            : kParts * (kColumns * 128) + row / 8 * 512 + device::in_rows_of_64(row, piece % 8);
    const device::Words4& words = query.words[n];
    if (row < kColumns)
      device::store_shared_16(shared_at(kAt.query) + place, words.x, words.y, words.z, words.w);
  }
}

}  // namespace kiln::kernels::kimi_k3_mla::attend
