// The fake driver's tensor maps: what cuda.h demands of the parameters, and what comes out.
#include <cstring>

#include "fixture.hpp"

namespace kiln::test {
namespace {

struct Request {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  cuuint32_t rank = 2;
  std::uintptr_t address = 0x1000;
  cuuint64_t dims[5] = {256, 64, 8, 4, 2};
  cuuint64_t strides[4] = {512, 32768, 262144, 1048576};
  cuuint32_t box[5] = {64, 32, 1, 1, 1};
  cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
};

class TensorMaps : public ::testing::Test {
 protected:
  void SetUp() override { driver_.symbol<decltype(cuInit)>("cuInit")(0); }
  CUresult encode(const Request& request, CUtensorMap* into) {
    return driver_.symbol<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled")(
        into, request.type, request.rank, reinterpret_cast<void*>(request.address), request.dims,
        request.strides, request.box, request.element_strides, request.interleave, request.swizzle,
        request.promotion, request.fill);
  }
  FakeDriver driver_;
  alignas(64) CUtensorMap map_{};
};

TEST_F(TensorMaps, SayWhatWasAskedFor) {
  ASSERT_EQ(encode({}, &map_), CUDA_SUCCESS);
  const auto fields = fake_driver::decode(map_);
  EXPECT_EQ(fields.magic, fake_driver::TensorMapFields::kMagic);
  EXPECT_EQ(fields.address, 0x1000u);
  EXPECT_EQ(fields.type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(fields.rank, 2);
  EXPECT_EQ(fields.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(fields.l2_promotion, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  EXPECT_EQ(fields.dims_minus[0], 255u);
  EXPECT_EQ(fields.dims_minus[1], 63u);
  EXPECT_EQ(fields.dims_minus[2], 0u);
  EXPECT_EQ(fields.strides[0], 512u);
  EXPECT_EQ(fields.strides[1], 0u);
  EXPECT_EQ(fields.box[0], 64);
  alignas(64) CUtensorMap again{};
  ASSERT_EQ(encode({}, &again), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&again, &map_, sizeof map_), 0);
}

TEST_F(TensorMaps, TakeEveryEdgeThatIsAllowedAndNothingBeyond) {
  const auto result = [&](auto change) {
    Request request;
    change(request);
    return encode(request, &map_);
  };
  const auto fails = [&](auto change) { return result(change) == CUDA_ERROR_INVALID_VALUE; };
  const auto goes = [&](auto change) { return result(change) == CUDA_SUCCESS; };
  EXPECT_TRUE(goes([](Request& r) { r.rank = 1; }));
  EXPECT_TRUE(goes([](Request& r) { r.rank = 5; }));
  EXPECT_TRUE(fails([](Request& r) { r.rank = 0; }));
  EXPECT_TRUE(fails([](Request& r) { r.rank = 6; }));
  EXPECT_TRUE(goes([](Request& r) { r.address = 16; }));
  EXPECT_TRUE(fails([](Request& r) { r.address = 8; }));
  EXPECT_TRUE(goes([](Request& r) { r.dims[1] = cuuint64_t{1} << 32; }));
  EXPECT_TRUE(fails([](Request& r) { r.dims[1] = (cuuint64_t{1} << 32) + 1; }));
  EXPECT_TRUE(fails([](Request& r) { r.dims[0] = 0; }));
  EXPECT_TRUE(goes([](Request& r) { r.strides[0] = (cuuint64_t{1} << 40) - 16; }));
  EXPECT_TRUE(fails([](Request& r) { r.strides[0] = cuuint64_t{1} << 40; }));
  EXPECT_TRUE(fails([](Request& r) { r.strides[0] = 520; }));
  EXPECT_TRUE(goes([](Request& r) { r.box[1] = 256; }));
  EXPECT_TRUE(fails([](Request& r) { r.box[1] = 257; }));
  EXPECT_TRUE(fails([](Request& r) { r.box[1] = 0; }));
  EXPECT_TRUE(fails([](Request& r) { r.box[0] = 4; }));    // 8 bytes
  EXPECT_TRUE(fails([](Request& r) { r.box[0] = 128; }));  // 256 bytes in a swizzle of 128
  EXPECT_TRUE(goes([](Request& r) {
    r.box[0] = 128;
    r.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  }));
  EXPECT_TRUE(fails([](Request& r) { r.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; }));
  EXPECT_TRUE(goes([](Request& r) { r.element_strides[1] = 8; }));
  EXPECT_TRUE(fails([](Request& r) { r.element_strides[1] = 9; }));
  EXPECT_TRUE(goes([](Request& r) { r.element_strides[0] = 0; }));  // not looked at
  EXPECT_TRUE(fails([](Request& r) { r.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; }));  // rank 2
  EXPECT_TRUE(goes([](Request& r) {
    r.interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
    r.rank = 3;
  }));
  EXPECT_TRUE(fails([](Request& r) {
    r.interleave = CU_TENSOR_MAP_INTERLEAVE_32B;
    r.rank = 3;
  }));  // its swizzle is 32 bytes
  EXPECT_TRUE(goes([](Request& r) { r.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; }));
  EXPECT_TRUE(fails([](Request& r) {
    r.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    r.type = CU_TENSOR_MAP_DATA_TYPE_UINT16;
  }));
  auto* crooked = reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(&map_) + 16);
  EXPECT_EQ(encode({}, crooked), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TensorMaps, TakeAnotherAddressInPlace) {
  const auto replace =
      driver_.symbol<decltype(cuTensorMapReplaceAddress)>("cuTensorMapReplaceAddress");
  EXPECT_EQ(replace(&map_, nullptr), CUDA_ERROR_INVALID_VALUE) << "no tensor map";
  ASSERT_EQ(encode({}, &map_), CUDA_SUCCESS);
  EXPECT_EQ(replace(&map_, reinterpret_cast<void*>(0x2008)), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(replace(&map_, reinterpret_cast<void*>(0x2000)), CUDA_SUCCESS);
  Request request;
  request.address = 0x2000;
  alignas(64) CUtensorMap made{};
  ASSERT_EQ(encode(request, &made), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&made, &map_, sizeof map_), 0);
}

}  // namespace
}  // namespace kiln::test
