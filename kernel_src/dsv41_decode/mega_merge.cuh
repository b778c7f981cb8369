// What the blocks of a cluster send each other, and the token's output made of it.
//
// Unit u is finished by block u % blocks.
#pragma once

#include "kernel_src/device/ptx_cluster.cuh"
#include "kernel_src/dsv41_decode/mega_products.cuh"
#include "kernel_src/dsv41_decode/output.cuh"

namespace kiln::kernels::dsv41_decode::mega {

constexpr u32 kLiveRows = kHeads < 8 ? 8 : kHeads;

// How many units block `rank` finishes, and the most that any does.
__device__ __forceinline__ u32 units_of(u32 rank, const Blocks& blocks) {
  return blocks.quotient(kUnits - rank + blocks.count - 1);
}

// Bytes from a unit's start to a head's 16-byte piece, `piece` of 8. Pieces change places by head,
// so that lanes that read use all banks.
__device__ __forceinline__ u32 in_unit(u32 head, u32 piece) {
  return head % 8 * 128 + (piece ^ (head & 1u)) * 16;
}

__device__ __forceinline__ void send(const Sums& sums, u32 rank, const Blocks& blocks) {
  const u32 group = threadIdx.x / 128;
  const u32 warp = threadIdx.x / 32 % 4;
  const u32 g = threadIdx.x / 4 % 8;
  const u32 t = threadIdx.x % 4;
  const bool odd = t & 1u;
  const u32 most_units = units_of(0, blocks);
#pragma unroll
  for (u32 row = 0; row < 2; ++row) {
    const u32 head = warp * 16 + row * 8 + g;
    if (warp * 16 + row * 8 >= kLiveRows) continue;  // whole warps
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
      const u32 unit = (warp * 2 + row) * kUnitBlocks + group * 8 + i;
      const u32 owner = blocks.remainder(unit);
      const u32 peer = device::address_in_block(shared_base(), owner);
      const u32 at = At::landed + (rank * most_units + blocks.quotient(unit)) * kUnitBytes;
#pragma unroll
      for (u32 eights = 0; eights < 4; eights += 2) {
        // A lane has two of every eight elements. Of two eights even lanes take the first one's
        // and odd lanes the second one's, together with their neighbour's.
        const float* first = sums.outputs[i / 4] + (i % 4 * 4 + eights) * 4 + row * 2;
        const float* second = first + 4;
        float own[2], other[2];
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
          own[j] = odd ? second[j] : first[j];
          other[j] = float_of(device::from_lane_across(bits_of(odd ? first[j] : second[j]), 1));
        }
        const float four[4] = {odd ? other[0] : own[0], odd ? other[1] : own[1],
                               odd ? own[0] : other[0], odd ? own[1] : other[1]};
        const u32 place = at + in_unit(g, (eights + t % 2) * 2 + t / 2);
        if (owner == rank) {
          store_shared_16(place,
                          {bits_of(four[0]), bits_of(four[1]), bits_of(four[2]), bits_of(four[3])});
        } else {
          device::send_16(peer + place, four[0], four[1], four[2], four[3],
                          peer + At::barriers + kArrived);
        }
      }
    }
    if (group != 0) continue;
    float total = sums.total[row];
#pragma unroll
    for (u32 across = 1; across < 4; across *= 2)
      total += float_of(device::from_lane_across(bits_of(total), across));
    for (u32 to = t; to < blocks.count; to += 4) {
      const u32 peer = device::address_in_block(shared_base(), to);
      device::send_8(peer + At::sums + (rank * kLiveRows + head) * 8, sums.reference[row], total,
                     peer + At::barriers + kArrived);
    }
  }
  device::barrier_arrive(barrier_at(kArrived));  // what stayed here
}

// What arrives from other blocks, and the sums of this one too.
__device__ __forceinline__ u32 bytes_to_arrive(u32 rank, const Blocks& blocks) {
  return (blocks.count - 1) * units_of(rank, blocks) * kUnitBytes + blocks.count * kLiveRows * 8;
}

// A lane finishes eight elements of a unit, one after the other.
constexpr u32 kGap = 4;

__device__ __forceinline__ OutputShare share_of(const Args& args, u64 position, u32 unit) {
  return output_share<kGap>(args, position, unit, threadIdx.x % 4 * 8);
}

__device__ __forceinline__ void finish(const Args& args, const OutputShare& share, u32 token,
                                       bool wanted, const Blocks& blocks) {
  const u32 head = threadIdx.x / 4 % 8;
  const u32 sums_at = At::sums + (share.unit / kUnitBlocks * 8 + head) * 8;
  const float none = float_of(0xff800000u);
  Floats2 sums[kMostBlocks];
  float maximum = none;
#pragma unroll
  for (u32 block = 0; block < kMostBlocks; ++block) {
    sums[block] = {none, 0.0f};
    if (block < blocks.count)
      sums[block] = *shared_at<const Floats2>(sums_at + block * (kLiveRows * 8));
    maximum = device::larger(maximum, sums[block].x);
  }
  const u32 from = At::landed + blocks.quotient(share.unit) * kUnitBytes;
  const u32 to_next = units_of(0, blocks) * kUnitBytes;
  const u32 first = in_unit(head, threadIdx.x % 4 * 2);
  const u32 second = in_unit(head, threadIdx.x % 4 * 2 + 1);
  float total = 0.0f;
  float values[8] = {};
#pragma unroll
  for (u32 block = 0; block < kMostBlocks; ++block) {
    if (block >= blocks.count) break;
    const float weight = device::power_of_2(sums[block].x - maximum);
    total = fused_multiply_add(weight, sums[block].y, total);
    const Words4 a = load_shared_16(from + block * to_next + first);
    const Words4 b = load_shared_16(from + block * to_next + second);
    const u32 words[8] = {a.x, a.z, b.x, b.z, a.y, a.w, b.y, b.w};  // 0, 4, 1, 5, 2, 6, 3, 7
#pragma unroll
    for (u32 j = 0; j < 8; ++j)
      values[j] = fused_multiply_add(weight, float_of(words[j]), values[j]);
  }
  total += device::power_of_2(fused_multiply_add(share.sink, kLog2E, -maximum));
  // No slot: all is 0, whatever the sink. With one, the largest p is at least 1.
  const float factor = total < 0.5f ? 0.0f : kUnshift / total;
#pragma unroll
  for (u32 j = 0; j < 8; ++j) values[j] *= factor;
  write_output<kGap>(args, share, values, token, wanted, threadIdx.x % 32);
}

}  // namespace kiln::kernels::dsv41_decode::mega
