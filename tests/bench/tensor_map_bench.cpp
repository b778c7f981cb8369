// What a tensor map costs on the host: made anew, patched, asked for again, and raw beside them;
// and the enqueueing of a write into a slot in device memory. Needs a GPU. Pin it to one processor:
// taskset -c 2 kiln_tensor_map_bench
#include <cuda.h>
#include <dlfcn.h>

#include "bench/rounds.hpp"
#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"

namespace {

using namespace kiln;
using bench::fail;
using bench::must;

constexpr int kCalls = 1000;
constexpr int kRounds = 2001;

TensorMapSpec spec_at(CUdeviceptr address) {
  return {.address = reinterpret_cast<const void*>(address),
          .type = ElementType::bf16,
          .rank = 3,
          .extents = {512, 4096, 8},
          .strides_bytes = {1024, 4096 * 1024},
          .box = {64, 64, 1},
          .swizzle = Swizzle::bytes_128};
}

void expect(const Result<TensorMapChange>& result, TensorMapChange change) {
  if (!result || *result != change) fail("another change than the one to be timed");
}

}  // namespace

int main() {
  auto opened = test::CudaDriver::open();
  if (!opened) fail(opened.error().message());
  auto driver = *std::move(opened);
  auto runtime = must(Runtime::open({}));
  auto memory = driver.buffer(1 << 20);
  const TensorMapSpec here = spec_at(memory.address());
  const TensorMapSpec there = spec_at(memory.address() + 4096);
  auto smaller = here;
  smaller.extents[1] = 4095;

  const auto encode = reinterpret_cast<decltype(&::cuTensorMapEncodeTiled)>(
      ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeTiled"));
  const auto patch = reinterpret_cast<decltype(&::cuTensorMapReplaceAddress)>(
      ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapReplaceAddress"));
  CUtensorMap raw;
  auto builder = must(runtime.tensor_map_builder());
  expect(builder.build(here), TensorMapChange::encoded);

  std::vector<bench::Arm> arms = {
      {"an empty call, for the loop",
       [&] {
         for (int i = 0; i < kCalls; ++i) asm volatile("" ::"r"(i) : "memory");
       }},
      {"raw cuTensorMapEncodeTiled",
       [&] {
         for (int i = 0; i < kCalls; ++i)
           if (encode(&raw, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, here.rank,
                      const_cast<void*>(here.address), here.extents.data(),
                      here.strides_bytes.data(), here.box.data(), here.element_strides.data(),
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_NONE,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
             fail("raw encode");
       }},
      {"raw cuTensorMapReplaceAddress",
       [&] {
         for (int i = 0; i < kCalls; ++i)
           if (patch(&raw, const_cast<void*>(i % 2 == 0 ? there.address : here.address)) !=
               CUDA_SUCCESS)
             fail("raw patch");
       }},
      {"build: another shape",
       [&] {
         for (int i = 0; i < kCalls; ++i)
           expect(builder.build(i % 2 == 0 ? smaller : here), TensorMapChange::encoded);
       }},
      {"build: another address",
       [&] {
         for (int i = 0; i < kCalls; ++i)
           expect(builder.build(i % 2 == 0 ? there : here), TensorMapChange::address);
       }},
      {"build: no change", [&] {
         for (int i = 0; i < kCalls; ++i) expect(builder.build(here), TensorMapChange::none);
       }}};
  bench::run_rounds(arms, kRounds, 1);
  bench::print("a tensor map (a row is 1000 calls: read us as ns)", arms);

  auto array = must(runtime.tensor_map_array(1));
  auto stream = driver.stream();
  std::vector<bench::Arm> writes = {{"TensorMapArray::set, enqueued and done", [&] {
                                       if (!array.set(0, builder.map(), stream.handle()))
                                         fail("set");
                                       stream.synchronize();
                                     }}};
  bench::run_rounds(writes, kRounds, 1);
  bench::print("a write into a slot", writes);
}
