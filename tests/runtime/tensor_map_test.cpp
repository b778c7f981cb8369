// Tensor maps without a device: every rule by name, which driver call a change costs, the array's
// writes, and the device's side compiled.
#include "kiln/tensor_map.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/cubin.hpp"
#include "runtime/driver_api.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/program.hpp"
#include "runtime/tensor_map_checks.hpp"
#include "support/runtime_fixture.hpp"
#include "support/tensor_map_kernel.hpp"

namespace kiln::test {
namespace {

static_assert(sizeof(TensorMap) == 128 && alignof(TensorMap) == 128);
static_assert(std::is_trivially_copyable_v<TensorMap>);  // as a launch argument must be

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

// 64 x 32 of bf16 in rows of 256 bytes, in boxes of 64 x 8.
TensorMapSpec rows() {
  return {.address = at(0x10000),
          .type = ElementType::bf16,
          .rank = 2,
          .extents = {64, 32},
          .strides_bytes = {256},
          .box = {64, 8}};
}

TensorMapSpec volume() {
  auto spec = rows();
  spec.rank = 3;
  spec.extents[2] = 4;
  spec.strides_bytes[1] = 8192;
  spec.box[2] = 1;
  return spec;
}

TensorMapSpec of_type(ElementType type, std::uint64_t extent, std::uint32_t box) {
  auto spec = rows();
  spec.type = type;
  spec.extents[0] = extent;
  spec.box[0] = box;
  return spec;
}

using Change = std::function<void(TensorMapSpec&)>;

TensorMapSpec changed(TensorMapSpec spec, const Change& change) {
  change(spec);
  return spec;
}

TEST(TensorMapChecks, TakeWhatTheDriverTakes) {
  const TensorMapSpec good[] = {
      rows(),
      volume(),
      changed(rows(), [](auto& s) { s.swizzle = Swizzle::bytes_128; }),
      changed(rows(),
              [](auto& s) {
                s.box = {32, 256}, s.swizzle = Swizzle::bytes_64;
              }),
      changed(rows(), [](auto& s) { s.box[0] = 16, s.swizzle = Swizzle::bytes_32; }),
      changed(rows(),
              [](auto& s) {
                s.extents = {1ULL << 32, 1};
              }),
      changed(rows(), [](auto& s) { s.strides_bytes[0] = (1ULL << 40) - 16; }),
      changed(rows(), [](auto& s) { s.element_strides[1] = 8; }),
      changed(rows(), [](auto& s) { s.out_of_bounds = OutOfBounds::nan; }),
      changed(rows(), [](auto& s) { s.rank = 1, s.strides_bytes[0] = 3; }),
      // Dimensions in an order of their own, as [tokens, heads, d] seen as d, tokens, heads.
      changed(volume(),
              [](auto& s) {
                s.strides_bytes = {1024, 128};
              }),
      changed(volume(), [](auto& s) { s.interleave = Interleave::bytes_16, s.box[0] = 3; }),
      changed(volume(),
              [](auto& s) {
                s.interleave = Interleave::bytes_32;
                s.swizzle = Swizzle::bytes_32;
                s.element_strides[0] = 2;
              }),
      of_type(ElementType::u4x16, 98, 32),
      of_type(ElementType::u4x16_padded, 256, 128),
      changed(of_type(ElementType::u6x16_padded, 256, 128),
              [](auto& s) { s.swizzle = Swizzle::bytes_128_atom_64; }),
  };
  for (const auto& spec : good) EXPECT_EQ(message_of(check_tensor_map(spec)), "(no error)");
}

TEST(TensorMapChecks, NameTheRuleTheValueTheLimitAndTheCure) {
  struct Case {
    TensorMapSpec spec;
    const char* message;
  };
  const auto bent = [](const Change& change) { return changed(rows(), change); };
  const auto volume_with = [](const Change& change) { return changed(volume(), change); };
  const Case cases[] = {
      {bent([](auto& s) { s.type = static_cast<ElementType>(16); }), "type is 16"},
      {bent([](auto& s) { s.swizzle = static_cast<Swizzle>(7); }), "swizzle is 7"},
      {bent([](auto& s) { s.rank = 0; }), "rank is 0; a tensor has 1 to 5"},
      {bent([](auto& s) { s.rank = 6; }), "rank is 6; a tensor has 1 to 5"},
      {bent([](auto& s) { s.interleave = Interleave::bytes_16; }), "rank is 2; an interleaved"},
      {bent([](auto& s) { s.address = nullptr; }), "address is null"},
      {bent([](auto& s) { s.address = at(0x10008); }), "address is 0x10008, no multiple of 16"},
      {volume_with([](auto& s) {
         s.interleave = Interleave::bytes_32;
         s.swizzle = Swizzle::bytes_32;
         s.address = at(0x10010);
       }),
       "address is 0x10010, no multiple of 32 bytes with Interleave::bytes_32"},
      {changed(of_type(ElementType::u4x16_padded, 128, 128),
               [](auto& s) { s.address = at(0x10010); }),
       "no multiple of 32 bytes with elements of u4x16_padded"},
      {bent([](auto& s) { s.extents[1] = 0; }), "extents[1] is 0 elements; a dimension has 1 to"},
      {bent([](auto& s) { s.extents[0] = (1ULL << 32) + 1; }), "extents[0] is 4294967297"},
      {of_type(ElementType::u4x16, 97, 32), "extents[0] is 97 elements of u4x16"},
      {of_type(ElementType::u6x16_padded, 192, 128), "hold a multiple of 128: pad the rows"},
      {bent([](auto& s) { s.strides_bytes[0] = 136; }),
       "strides_bytes[0] (of dimension 1) is 136 bytes, no multiple of 16: pad the rows"},
      {volume_with([](auto& s) {
         s.interleave = Interleave::bytes_32;
         s.swizzle = Swizzle::bytes_32;
         s.strides_bytes[1] = 8208;
       }),
       "strides_bytes[1] (of dimension 2) is 8208 bytes, no multiple of 32"},
      {bent([](auto& s) { s.strides_bytes[0] = 1ULL << 40; }), "a stride is below 2^40"},
      {bent([](auto& s) { s.box[1] = 257; }), "box[1] is 257 elements; a box has 1 to 256"},
      {bent([](auto& s) { s.box[1] = 0; }), "box[1] is 0 elements"},
      {bent([](auto& s) { s.box[0] = 12; }),
       "box[0] is 12 elements of bf16 = 24 bytes, no multiple of 16 bytes: use a multiple of 8"},
      {of_type(ElementType::u4x16, 64, 48), "48 elements of u4x16 = 24 bytes, no multiple of 16"},
      {of_type(ElementType::u4x16_padded, 128, 64), "box[0] is 64 elements of u4x16_padded"},
      {bent([](auto& s) { s.box[0] = 72, s.swizzle = Swizzle::bytes_128; }),
       "= 144 bytes, more than the 128 that Swizzle::bytes_128 spans: use a box of at most 64"},
      {bent([](auto& s) { s.swizzle = Swizzle::bytes_64; }), "more than the 64"},
      {bent([](auto& s) { s.box[0] = 24, s.swizzle = Swizzle::bytes_32; }), "more than the 32"},
      {bent([](auto& s) { s.element_strides[1] = 9; }), "element_strides[1] is 9"},
      {bent([](auto& s) { s.element_strides[1] = 0; }), "element_strides[1] is 0"},
      {bent([](auto& s) { s.element_strides[0] = 2; }), "the innermost dimension is copied whole"},
      {volume_with([](auto& s) { s.interleave = Interleave::bytes_32; }),
       "Swizzle::none with Interleave::bytes_32"},
      {changed(of_type(ElementType::u4x16_padded, 128, 128),
               [](auto& s) { s.swizzle = Swizzle::bytes_128_atom_64; }),
       "Swizzle::bytes_128_atom_64 with elements of u4x16_padded"},
      {volume_with([](auto& s) {
         s.type = ElementType::u6x16_padded;
         s.extents[0] = 128;
         s.box[0] = 128;
         s.interleave = Interleave::bytes_16;
       }),
       "u6x16_padded cannot be interleaved"},
      {changed(of_type(ElementType::u8, 64, 64),
               [](auto& s) { s.out_of_bounds = OutOfBounds::nan; }),
       "out_of_bounds is nan with elements of u8"},
  };
  for (const auto& [spec, message] : cases) {
    const auto status = check_tensor_map(spec);
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument) << message;
    EXPECT_NE(message_of(status).find(message), std::string::npos) << message_of(status);
  }
}

// A driver that counts its calls and writes what it is given into the map, the address first.
struct FakeDriver {
  static inline int encodes, patches, frees;
  static inline CUresult answer;
  static inline std::vector<CUstreamBatchMemOpParams> writes;
  static inline CUcontext context;

  static std::shared_ptr<const DriverApi> make() {
    encodes = patches = frees = 0;
    answer = CUDA_SUCCESS;
    writes.clear();
    context = reinterpret_cast<CUcontext>(1);
    auto api = std::make_shared<DriverApi>();
    api->cuTensorMapEncodeTiled =
        [](CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
           const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
           const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
           CUtensorMapFloatOOBfill fill) {
          ++encodes;
          const std::uint64_t words[] = {reinterpret_cast<std::uintptr_t>(address),
                                         static_cast<std::uint64_t>(type),
                                         rank,
                                         extents[1],
                                         strides[0],
                                         box[1],
                                         element_strides[1],
                                         static_cast<std::uint64_t>(interleave),
                                         static_cast<std::uint64_t>(swizzle),
                                         static_cast<std::uint64_t>(promotion),
                                         static_cast<std::uint64_t>(fill)};
          std::copy(std::begin(words), std::end(words), map->opaque);
          return answer;
        };
    api->cuTensorMapReplaceAddress = [](CUtensorMap* map, void* address) {
      ++patches;
      map->opaque[0] = reinterpret_cast<std::uintptr_t>(address);
      return answer;
    };
    api->cuCtxGetCurrent = [](CUcontext* current) {
      *current = context;
      return CUDA_SUCCESS;
    };
    api->cuCtxGetDevice = [](CUdevice* device) {
      *device = 0;
      return CUDA_SUCCESS;
    };
    api->cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    api->cuMemAlloc = [](CUdeviceptr* memory, std::size_t bytes) {
      *memory = bytes == 3 * sizeof(TensorMap) ? 0x40000 : 0;
      return answer;
    };
    api->cuMemFree = [](CUdeviceptr memory) {
      EXPECT_EQ(memory, 0x40000u);
      ++frees;
      return answer;
    };
    api->cuStreamBatchMemOp = [](CUstream, unsigned count, CUstreamBatchMemOpParams* list,
                                 unsigned) {
      writes.assign(list, list + count);
      return answer;
    };
    return api;
  }
};

TEST(TensorMapBuilder, HandsTheSpecToTheDriver) {
  TensorMapBuilder builder(FakeDriver::make());
  auto spec = volume();
  spec.element_strides[1] = 4;
  spec.swizzle = Swizzle::bytes_32;
  spec.interleave = Interleave::bytes_32;
  spec.l2_promotion = L2Promotion::bytes_128;
  spec.out_of_bounds = OutOfBounds::nan;
  ASSERT_TRUE(builder.build(spec));
  EXPECT_EQ(builder.map(), (TensorMap{{0x10000, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, 32, 256, 8, 4,
                                       CU_TENSOR_MAP_INTERLEAVE_32B, CU_TENSOR_MAP_SWIZZLE_32B,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA}}));
}

TEST(TensorMapBuilder, PaysOnlyForWhatChanged) {
  TensorMapBuilder builder(FakeDriver::make());
  const auto build = [&](const TensorMapSpec& spec) {
    const auto change = builder.build(spec);
    EXPECT_TRUE(change) << message_of(change);
    return change ? *change : TensorMapChange::none;
  };
  const auto calls = [] { return std::pair(FakeDriver::encodes, FakeDriver::patches); };
  EXPECT_EQ(build(rows()), TensorMapChange::encoded);
  EXPECT_EQ(build(rows()), TensorMapChange::none);
  EXPECT_EQ(calls(), std::pair(1, 0));
  auto moved = rows();
  moved.address = at(0x20000);
  EXPECT_EQ(build(moved), TensorMapChange::address);
  EXPECT_EQ(builder.map().words[0], 0x20000u);
  EXPECT_EQ(build(moved), TensorMapChange::none);
  EXPECT_EQ(calls(), std::pair(1, 1));

  // Each field alone makes another map.
  int encodes = 1;
  for (const Change& change : std::initializer_list<Change>{
           [](auto& s) { s.type = ElementType::f16; }, [](auto& s) { s = volume(); },
           [](auto& s) { s.extents[1] = 31; }, [](auto& s) { s.strides_bytes[0] = 512; },
           [](auto& s) { s.box[1] = 4; }, [](auto& s) { s.element_strides[1] = 2; },
           [](auto& s) { s.swizzle = Swizzle::bytes_128; },
           [](auto& s) { s.l2_promotion = L2Promotion::bytes_256; },
           [](auto& s) { s.out_of_bounds = OutOfBounds::nan; }}) {
    EXPECT_EQ(build(rows()), encodes == 1 ? TensorMapChange::address : TensorMapChange::encoded);
    EXPECT_EQ(build(changed(rows(), change)), TensorMapChange::encoded);
    encodes += encodes == 1 ? 1 : 2;
    EXPECT_EQ(FakeDriver::encodes, encodes);
  }
}

TEST(TensorMapBuilder, KeepsItsMapWhenABuildFails) {
  TensorMapBuilder builder(FakeDriver::make());
  ASSERT_TRUE(builder.build(rows()));
  const auto map = builder.map();
  auto moved = rows();
  moved.address = at(0x10004);
  EXPECT_EQ(builder.build(moved).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(builder.build({}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(FakeDriver::encodes + FakeDriver::patches, 1);  // checked before the driver
  FakeDriver::answer = CUDA_ERROR_INVALID_VALUE;
  moved.address = at(0x20000);
  EXPECT_EQ(builder.build(moved).error().driver_result(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(message_of(builder.build(volume())).rfind("cuTensorMapEncodeTiled failed", 0), 0u);
  EXPECT_EQ(builder.map(), map);
  FakeDriver::answer = CUDA_SUCCESS;
  EXPECT_EQ(*builder.build(rows()), TensorMapChange::none);
}

TEST(TensorMapArray, WritesAMapByValueIntoItsSlot) {
  auto array = TensorMapArray::allocate(FakeDriver::make(), 3, {});
  ASSERT_TRUE(array) << message_of(array);
  ASSERT_EQ(array->size(), 3u);
  EXPECT_EQ(array->address(2), at(0x40000 + 256));
  TensorMap map;
  for (std::uint64_t i = 0; i < 16; ++i) map.words[i] = i * 0x0101010101010101u;
  ASSERT_TRUE(array->set(2, map, nullptr));
  ASSERT_EQ(FakeDriver::writes.size(), 16u);
  for (std::uint64_t i = 0; i < 16; ++i) {
    const auto& write = FakeDriver::writes[i].writeValue;
    EXPECT_EQ(write.operation, CU_STREAM_MEM_OP_WRITE_VALUE_64);
    EXPECT_EQ(write.address, 0x40000 + 256 + 8 * i);
    EXPECT_EQ(write.value64, map.words[i]);
  }
  FakeDriver::writes.clear();
  EXPECT_NE(message_of(array->set(3, map, nullptr)).find("no tensor map 3; the array has 3"),
            std::string::npos);
  EXPECT_TRUE(FakeDriver::writes.empty());
  FakeDriver::answer = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(array->set(0, map, nullptr).error().driver_result(), CUDA_ERROR_NOT_SUPPORTED);
  FakeDriver::answer = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  EXPECT_EQ(array->set(0, map, nullptr).code(), ErrorCode::capture_active);
}

TEST(TensorMapArray, AMovedOneIsEmptyAndWhatItReplacesIsFreed) {
  auto first = TensorMapArray::allocate(FakeDriver::make(), 3, {});
  auto second = TensorMapArray::allocate(FakeDriver::make(), 3, {});
  ASSERT_TRUE(first && second);
  *first = *std::move(second);
  EXPECT_EQ(first->size(), 3u);
  EXPECT_EQ(second->size(), 0u);
  EXPECT_EQ(FakeDriver::frees, 1);
  auto& same = *first;
  *first = std::move(same);
  EXPECT_EQ(first->size(), 3u);
  EXPECT_EQ(FakeDriver::frees, 1);
}

TEST(TensorMapArray, FreesOnceAndReportsWhatFails) {
  std::string warnings;
  const auto log =
      std::make_shared<const LogSink>([&](LogLevel, std::string_view text) { warnings = text; });
  {
    auto first = TensorMapArray::allocate(FakeDriver::make(), 3, log);
    ASSERT_TRUE(first);
    TensorMapArray moved = *std::move(first);
    TensorMapArray other;
    other = std::move(moved);
    FakeDriver::answer = CUDA_ERROR_INVALID_CONTEXT;
  }
  EXPECT_EQ(FakeDriver::frees, 1);
  EXPECT_NE(warnings.find("3 tensor maps: cuMemFree failed"), std::string::npos) << warnings;
}

TEST(TensorMapArray, NeedsAContextAndAtLeastOneMap) {
  const auto driver = FakeDriver::make();
  EXPECT_EQ(TensorMapArray::allocate(driver, 0, {}).error().code(), ErrorCode::invalid_argument);
  FakeDriver::context = nullptr;
  EXPECT_EQ(TensorMapArray::allocate(driver, 3, {}).error().code(), ErrorCode::no_device);
}

TEST(TensorMapArray, AndBuilderLeaveTheDriverAloneInAForkedChild) {
  watch_forks();
  TensorMapBuilder builder(FakeDriver::make());
  auto array = TensorMapArray::allocate(FakeDriver::make(), 3, {});
  ASSERT_TRUE(array && builder.build(rows()));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool refused = builder.build(volume()).status().code() == ErrorCode::no_device &&
                         array->set(0, builder.map(), nullptr).code() == ErrorCode::no_device;
    *array = TensorMapArray();
    ::_exit(refused && FakeDriver::encodes == 1 && FakeDriver::writes.empty() &&
                    FakeDriver::frees == 0
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

class TensorMapProgram : public RuntimeFixture {};

TEST_F(TensorMapProgram, CompilesWithoutHeadersForBothAbis) {
  auto runtime = open();
  ASSERT_TRUE(add_tensor_map_source(runtime));
  for (const auto& [entry, bytes] : {std::pair{"by_value", 128u}, std::pair{"by_pointer", 8u}})
    for (const auto* architecture : {"sm_90a", "sm_100a"}) {
      const auto id = runtime.add(tensor_map_spec(entry, 1024));
      ASSERT_TRUE(id) << message_of(id);
      const auto artifact = runtime.artifact(*id, architecture);
      ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
      const auto info = inspect_cubin({artifact->cubin, artifact->cubin_bytes});
      ASSERT_TRUE(info) << message_of(info);
      const auto kernel =
          std::find_if(info->kernels.begin(), info->kernels.end(),
                       [symbol = entry](const auto& other) { return other.symbol == symbol; });
      ASSERT_NE(kernel, info->kernels.end()) << entry;
      ASSERT_EQ(kernel->parameters.size(), 4u);
      EXPECT_EQ(kernel->parameters[0].bytes, bytes) << architecture;
    }
}

TEST_F(TensorMapProgram, HasTheMapsHeaderInItsKeyOnlyWhereItIsIncluded) {
  SourceSet sources;
  ASSERT_TRUE(sources.add("with.cu", "#include \"jit/tensor_map.cuh\"\n"));
  ASSERT_TRUE(sources.add("without.cu", "int x;\n"));
  FileMemo memo;
  for (const auto& [source, included] : {std::pair{"with.cu", true}, {"without.cu", false}}) {
    const auto program = make_program({.name = "k", .source = source}, sources, {}, memo);
    ASSERT_TRUE(program) << message_of(program);
    const auto key = key_of(*program, "sm_90a", {});
    EXPECT_EQ(key.text.find("jit/tensor_map.cuh") != std::string::npos, included) << key.text;
  }
}

}  // namespace
}  // namespace kiln::test
