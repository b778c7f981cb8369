// Tensor maps: the rules that cuda.h states for them, and a pattern of 128 bytes that shows what
// was asked for.
#include <cstring>

#include "tests/support/fake_driver/fake_driver.hpp"
#include "tests/support/fake_driver/state.hpp"

namespace fake_driver {
namespace {

constexpr unsigned kMapAlignment = 64;
constexpr unsigned kMostRank = 5;
constexpr std::uint64_t kMostDimension = std::uint64_t{1} << 32;
constexpr std::uint64_t kStrideEnd = std::uint64_t{1} << 40;
constexpr unsigned kMostBox = 256;
constexpr unsigned kMostElementStride = 8;

// Of the packed types the bits of an element; else its bytes times 8.
unsigned bits_of(unsigned type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 16;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 64;
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
      return 6;
    default:
      return 32;
  }
}

bool is_float(unsigned type) {
  return (type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
}

bool is_spread(unsigned type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B ||
         type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

unsigned step_of(unsigned type, unsigned interleave) {
  return interleave == CU_TENSOR_MAP_INTERLEAVE_32B || is_spread(type) ? 32 : 16;
}

unsigned swizzle_bytes(unsigned swizzle) {
  if (swizzle == CU_TENSOR_MAP_SWIZZLE_32B) return 32;
  return swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64 : 128;
}

bool dimensions_allowed(const TensorMapFields& map, const cuuint64_t* dims,
                        const cuuint64_t* strides) {
  for (unsigned i = 0; i < map.rank; ++i)
    if (dims[i] == 0 || dims[i] > kMostDimension) return false;
  if (is_spread(map.type) && dims[0] % 128 != 0) return false;
  if (map.type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B && dims[0] % 2 != 0) return false;
  for (unsigned i = 0; i + 1 < map.rank; ++i)
    if (strides[i] % step_of(map.type, map.interleave) != 0 || strides[i] >= kStrideEnd)
      return false;
  return true;
}

bool box_allowed(const TensorMapFields& map, const cuuint32_t* box,
                 const cuuint32_t* element_strides) {
  for (unsigned i = 0; i < map.rank; ++i) {
    if (box[i] == 0 || box[i] > kMostBox) return false;
    const bool ignored = i == 0 && map.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
    if (!ignored && (element_strides[i] == 0 || element_strides[i] > kMostElementStride))
      return false;
  }
  if (is_spread(map.type) && box[0] != 128) return false;
  if (map.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return true;
  const auto bits = box[0] * bits_of(map.type);
  if (bits % (16 * 8) != 0) return false;
  return map.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || bits <= 8 * swizzle_bytes(map.swizzle);
}

bool modes_allowed(const TensorMapFields& map) {
  if (map.type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B ||
      map.interleave > CU_TENSOR_MAP_INTERLEAVE_32B ||
      map.swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B ||
      map.l2_promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
      map.oob_fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
    return false;
  if (map.rank == 0 || map.rank > kMostRank) return false;
  if (map.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE && map.rank < 3) return false;
  if (map.interleave == CU_TENSOR_MAP_INTERLEAVE_32B && map.swizzle != CU_TENSOR_MAP_SWIZZLE_32B)
    return false;
  if (map.oob_fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA && !is_float(map.type))
    return false;
  if (map.type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B &&
      map.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
    return false;
  if (!is_spread(map.type)) return true;
  return map.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || map.swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
         map.swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B ||
         (map.swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
          map.type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
}

std::uint64_t digest_of(const TensorMapFields& map) {
  unsigned char bytes[sizeof map];
  std::memcpy(bytes, &map, sizeof map);
  std::uint64_t digest = 14695981039346656037u;
  for (std::size_t i = 0; i < offsetof(TensorMapFields, digest); ++i)
    digest = (digest ^ bytes[i]) * 1099511628211u;
  return digest;
}

}  // namespace
}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  FAKE_DRIVER_ENTER(cuTensorMapEncodeTiled);
  if (out == nullptr || reinterpret_cast<std::uintptr_t>(out) % kMapAlignment != 0 ||
      dims == nullptr || box == nullptr || element_strides == nullptr || rank > kMostRank ||
      (rank > 1 && strides == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  TensorMapFields map{};
  map.magic = TensorMapFields::kMagic;
  map.address = reinterpret_cast<std::uintptr_t>(address);
  map.type = static_cast<std::uint8_t>(type);
  map.rank = static_cast<std::uint8_t>(rank);
  map.interleave = static_cast<std::uint8_t>(interleave);
  map.swizzle = static_cast<std::uint8_t>(swizzle);
  map.l2_promotion = static_cast<std::uint8_t>(promotion);
  map.oob_fill = static_cast<std::uint8_t>(fill);
  if (!modes_allowed(map) || map.address % step_of(map.type, map.interleave) != 0 ||
      !dimensions_allowed(map, dims, strides) || !box_allowed(map, box, element_strides))
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < rank; ++i) {
    map.dims_minus[i] = static_cast<std::uint32_t>(dims[i] - 1);
    if (i + 1 < rank) map.strides[i] = strides[i];
    map.box[i] = static_cast<std::uint16_t>(box[i]);
    map.element_strides[i] = static_cast<std::uint8_t>(element_strides[i]);
  }
  map.digest = digest_of(map);
  std::memcpy(out, &map, sizeof map);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* out, void* address) {
  FAKE_DRIVER_ENTER(cuTensorMapReplaceAddress);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto map = decode(*out);
  if (map.magic != TensorMapFields::kMagic || map.digest != digest_of(map))
    return CUDA_ERROR_INVALID_VALUE;
  map.address = reinterpret_cast<std::uintptr_t>(address);
  if (map.address % step_of(map.type, map.interleave) != 0) return CUDA_ERROR_INVALID_VALUE;
  map.digest = digest_of(map);
  std::memcpy(out, &map, sizeof map);
  return CUDA_SUCCESS;
}

}  // extern "C"
