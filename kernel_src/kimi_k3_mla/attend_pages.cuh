// Brings pages of the cache, and the query.
#pragma once

#include "kernel_src/device/e4m3_products.cuh"
#include "kernel_src/device/ptx_memory.cuh"
#include "kernel_src/device/ptx_tensor_map.cuh"
#include "kernel_src/kimi_k3_mla/attend_common.cuh"

namespace kiln::kernels::kimi_k3_mla::attend {

// By one thread. Of a pair each block brings two of the four parts to both, and the rope parts of
// every other page.
__device__ __forceinline__ void bring_page(const TensorMap& latent, const TensorMap& rope,
                                           const Turn& turn, int page, bool even) {
  const u32 full = full_at(turn.stage);
  const u32 to = page_at(turn.stage);
  wait_for(empty_at(turn.stage), turn.parity ^ 1);
  device::barrier_arrive_expect(full, kPageBytes);
  if constexpr (kBlocks == 1) {
#pragma unroll
    for (u32 part = 0; part < kParts; ++part)
      device::load_box_3d(to + part * kPartBytes, &latent, static_cast<int>(part * 128), 0, page,
                          full);
    device::load_box_3d(to + kParts * kPartBytes, &rope, kLatentDim, 0, page, full);
  } else {
    constexpr u16 both = 3;
    const u32 rank = device::cluster_rank();
#pragma unroll
    for (u32 i = 0; i < kParts / 2; ++i) {
      const u32 part = rank * (kParts / 2) + i;
      device::load_box_3d_to(both, to + part * kPartBytes, &latent, static_cast<int>(part * 128), 0,
                             page, full);
    }
    if (even == (rank == 0))
      device::load_box_3d_to(both, to + kParts * kPartBytes, &rope, kLatentDim, 0, page, full);
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
  Turn turn;
  for (; at < end; at += 32) {
    const int pages = ahead;
    const int next = at + 32 + lane;
    ahead = next < end ? table[next] : 0;
    const int count = smaller(32, end - at);
    for (int i = 0; i < count; ++i) {
      const int page = __shfl_sync(0xffffffffu, pages, i);
      if (lane == 0) bring_page(latent, rope, turn, page, i % 2 == 0);
      turn.next();
    }
  }
}

// By the consumers: the block's rows of the query, zeros where it has none.
__device__ __forceinline__ void bring_query(const Args& args, const Item& item) {
  constexpr u32 pieces = kKeyDim / 16;
  const u8* from =
      args.query +
      (u64{item.query_begin} * args.heads + static_cast<u64>(item.first_row)) * kKeyDim;
  for (u32 i = threadIdx.x; i < kColumns * pieces; i += kConsumerThreads) {
    const u32 row = i / pieces;
    const u32 piece = i % pieces;
    device::Words4 words{};
    if (item.first_row + static_cast<int>(row) < item.rows)
      words = device::load_16(from + u64{row} * kKeyDim + piece * 16);
    const u32 part = piece / 8;
    const u32 place =
        part < kParts
            ? part * (kColumns * 128) + row / 8 * 1024 + device::in_rows_of_128(row, piece % 8)
            : kParts * (kColumns * 128) + row / 8 * 512 + device::in_rows_of_64(row, piece % 8);
    device::store_shared_16(shared_at(kAt.query) + place, words.x, words.y, words.z, words.w);
  }
}

}  // namespace kiln::kernels::kimi_k3_mla::attend
