// The numbers that every decode program takes from its key, the scale of what it adds up, and its
// shared memory.
#pragma once

#include "jit/key.cuh"
#include "kernel_src/device/ptx_mbarrier.cuh"
#include "kernel_src/device/ptx_memory.cuh"
#include "kernel_src/dsv41_decode/args.hpp"
#include "kernel_src/shared/dsv41_record.hpp"

namespace kiln::kernels::dsv41_decode {

using device::Words4;
using dsv41::Record;

constexpr u32 kHeads = key::heads;
constexpr u32 kSwaSlots = key::swa_slots;
constexpr u32 kCompressedSlots = key::compressed_slots;
constexpr Record kRecord = static_cast<Record>(key::record);
constexpr u32 kFirstRopeChunk = (dsv41::kHeadDim - dsv41::kRopeDim) / dsv41::kQueryChunk;
constexpr u32 kFirstRopeBlock = (dsv41::kHeadDim - dsv41::kRopeDim) / kOutputBlock;

constexpr float kLog2E = 1.4426950408889634f;
// A tile's elements are 2^-32 times what they stand for, so that one bf16 factor takes a record's
// bits there.
constexpr u32 kShift = 32;
constexpr float kUnshift = 4294967296.0f;
// 512^-0.5 * log2(e), and the shift undone: scores are in powers of 2.
constexpr float kScoreScale = 0.04419417382415922f * kLog2E * kUnshift;

extern __shared__ __align__(1024) u8 shared_memory[];

struct alignas(8) Floats2 {
  float x, y;
};
struct alignas(8) Words2 {
  u32 x, y;
};

template <class T>
__device__ __forceinline__ T* shared_at(u32 byte) {
  return reinterpret_cast<T*>(shared_memory + byte);
}
__device__ __forceinline__ Words4 load_shared_16(u32 byte) {
  return *shared_at<const Words4>(byte);
}
__device__ __forceinline__ void store_shared_16(u32 byte, const Words4& words) {
  *shared_at<Words4>(byte) = words;
}
__device__ __forceinline__ u32 shared_base() {
  return device::shared_address(shared_memory);
}

}  // namespace kiln::kernels::dsv41_decode
