// What mega.cu and mega_sm90a.cu share: all but the matrix units.
//
// A cluster works on a token, its blocks in turn on tiles of 64 slots. Two warpgroups of a block
// gather records and make them bf16, once for all heads; two multiply, heads on the matrix units'
// rows, padded to 64. P is rounded to bf16 once, against a reference that moves only when the
// maximum grows by more than 6 octaves. Then each block adds up its share of the token's output
// from what all blocks sent it, in order of rank.
#pragma once

#include "kernel_src/device/ptx_grid_dependency.cuh"
#include "kernel_src/device/ptx_registers.cuh"
#include "kernel_src/dsv41_decode/mega_merge.cuh"
#include "kernel_src/dsv41_decode/mega_records.cuh"

namespace kiln::kernels::dsv41_decode::mega {

// Registers of a thread: no more in all than the 128 that each has at first.
constexpr int kRegisters = 65536 / kBlockThreads;
constexpr int kConsumerRegisters = 192;
constexpr int kProducerRegisters = 64;

// The row of angles, and whether there is one: nothing is written for a token without.
struct Position {
  u64 row;
  bool wanted;
};

__device__ __forceinline__ Position position_of(const Args& args, u32 token) {
  const u64 given = static_cast<u64>(args.positions[token]);
  // Unsigned: negative positions are too large as well.
  const bool wanted = given < args.rope_positions;
  return {wanted ? given : 0, wanted};
}

// From the sums that all blocks have sent to the token's output.
__device__ __forceinline__ void finish_token(const Args& args, u32 token) {
  const Blocks blocks(device::cluster_blocks());
  const Position position = position_of(args, token);  // again, rather than in registers till now
  const u32 step = kBlockThreads / 32 * blocks.count;
  u32 unit = threadIdx.x / 32 * blocks.count + device::cluster_rank();
  OutputShare share = share_of(args, position.row, unit);
  while (!device::barrier_try_wait_cluster(barrier_at(kArrived), 0)) {
  }
  for (; unit < kUnits; unit += step) {
    const OutputShare next = share_of(args, position.row, unit + step);
    finish(args, share, token, position.wanted, blocks);
    share = next;
  }
}

template <class Products>
__device__ __forceinline__ void decode(const Args& args) {
  const u32 token = blockIdx.y;
  if (threadIdx.x == 0) {
    const Blocks blocks(device::cluster_blocks());
#pragma unroll
    for (u32 i = 0; i < kTiles; ++i) {
      device::barrier_init(barrier_at(kFull + i * 8), kProducerThreads);
      device::barrier_init(barrier_at(kEmpty + i * 8), kConsumerThreads / 32);
    }
    device::barrier_init(barrier_at(kArrived), 1 + kConsumerThreads);
    device::barrier_init(barrier_at(kLeave), blocks.count);
    device::fence_barrier_init();
    device::barrier_arrive_expect(barrier_at(kArrived),
                                  bytes_to_arrive(device::cluster_rank(), blocks));
  }
  __syncthreads();
  device::cluster_arrive();
  device::wait_for_previous_kernels();
  if (threadIdx.x >= kConsumerThreads) {
    device::fewer_registers<kProducerRegisters>();
    produce<Products>(args, token);
    device::allow_next_kernel();
    device::cluster_wait();
    // Back to as many as at first, but never before the others took what was given up: they would
    // wait for ever, and whoever waits for what they send with them.
    device::barrier_sync(kRegistersBarrier, kBlockThreads);
    device::more_registers<kRegisters>();
  } else {
    device::more_registers<kConsumerRegisters>();
    device::barrier_arrive_of_warp(kRegistersBarrier, kBlockThreads);
    const Lengths lengths = lengths_of(args, token);
    bring_query(args, token, position_of(args, token).row);
    Products::publish();
    device::barrier_sync(kConsumerBarrier, kConsumerThreads);
    Sums sums;
    consume<Products>(sums, lengths);
    // Nobody here needs query, records and scores any more: those who bring records are ahead.
    device::barrier_sync(kConsumerBarrier, kConsumerThreads);
    device::cluster_wait();  // all blocks have made their barriers
    const Blocks blocks(device::cluster_blocks());
    if (threadIdx.x < blocks.count)
      device::barrier_arrive_in_block(device::address_in_block(barrier_at(kLeave), threadIdx.x));
    while (!device::barrier_try_wait_cluster(barrier_at(kLeave), 0)) {
    }
    send(sums, device::cluster_rank(), blocks);
    device::fewer_registers<kRegisters>();
  }
  finish_token(args, token);
}

}  // namespace kiln::kernels::dsv41_decode::mega
