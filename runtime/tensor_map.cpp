#include "kiln/tensor_map.hpp"

#include <cuda.h>

#include <string>
#include <utility>

#include "runtime/driver_api.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/tensor_map_checks.hpp"

namespace kiln {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= 64,
              "the driver writes into it");
// The enumerations have the driver's order, so that a value is handed on as it is.
static_assert(static_cast<int>(ElementType::bf16) == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 &&
              static_cast<int>(ElementType::tf32_flush) == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ &&
              static_cast<int>(Swizzle::bytes_128) == CU_TENSOR_MAP_SWIZZLE_128B &&
              static_cast<int>(Interleave::bytes_32) == CU_TENSOR_MAP_INTERLEAVE_32B &&
              static_cast<int>(L2Promotion::bytes_256) == CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
              static_cast<int>(OutOfBounds::nan) ==
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
#if CUDA_VERSION >= 12080
static_assert(static_cast<int>(ElementType::u6x16_padded) ==
                  CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B &&
              static_cast<int>(Swizzle::bytes_128_atom_64) == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B);
#endif

CUtensorMap* raw(TensorMap& map) {
  return reinterpret_cast<CUtensorMap*>(&map);
}

}  // namespace

TensorMapBuilder::TensorMapBuilder(std::shared_ptr<const DriverApi> driver) noexcept
    : driver_(std::move(driver)), generation_(fork_generation()) {}

Result<TensorMapChange> TensorMapBuilder::build(const TensorMapSpec& spec) {
  if (spec == spec_ && spec_.rank != 0) return TensorMapChange::none;
  if (generation_ != fork_generation()) return forked_error();
  auto moved = spec_;
  moved.address = spec.address;
  return moved == spec && spec_.rank != 0 ? replace_address(spec) : encode(spec);
}

Result<TensorMapChange> TensorMapBuilder::replace_address(const TensorMapSpec& spec) {
  if (auto status = check_tensor_address(spec); !status) return status.error();
  auto map = map_;
  const auto result = driver_->cuTensorMapReplaceAddress(raw(map), const_cast<void*>(spec.address));
  if (result != CUDA_SUCCESS) return driver_->failed("cuTensorMapReplaceAddress", result);
  map_ = map;
  spec_.address = spec.address;
  return TensorMapChange::address;
}

Result<TensorMapChange> TensorMapBuilder::encode(const TensorMapSpec& spec) {
  if (auto status = check_tensor_map(spec); !status) return status.error();
  TensorMap map;
  const auto result = driver_->cuTensorMapEncodeTiled(
      raw(map), static_cast<CUtensorMapDataType>(spec.type), spec.rank,
      const_cast<void*>(spec.address), spec.extents.data(), spec.strides_bytes.data(),
      spec.box.data(), spec.element_strides.data(),
      static_cast<CUtensorMapInterleave>(spec.interleave),
      static_cast<CUtensorMapSwizzle>(spec.swizzle),
      static_cast<CUtensorMapL2promotion>(spec.l2_promotion),
      static_cast<CUtensorMapFloatOOBfill>(spec.out_of_bounds));
  if (result != CUDA_SUCCESS) return driver_->failed("cuTensorMapEncodeTiled", result);
  map_ = map;
  spec_ = spec;
  return TensorMapChange::encoded;
}

Result<TensorMapArray> TensorMapArray::allocate(std::shared_ptr<const DriverApi> driver,
                                                std::size_t count,
                                                std::weak_ptr<const LogSink> log) {
  if (count == 0)
    return Error(ErrorCode::invalid_argument, "an array of 0 tensor maps; ask for at least 1");
  constexpr std::size_t kMost = SIZE_MAX / sizeof(TensorMap);
  if (count > kMost)
    return Error(ErrorCode::invalid_argument, "an array of " + std::to_string(count) +
                                                  " tensor maps; at most " + std::to_string(kMost));
  KILN_TRY(const auto device, driver->current_device());
  if (device < 0)
    return Error(ErrorCode::no_device,
                 "no CUDA context is current on this thread: call cudaSetDevice, or make one "
                 "current with cuCtxSetCurrent, before Runtime::tensor_map_array");
  TensorMapArray array;
  CUdeviceptr memory = 0;
  const OutsideCapture outside(*driver);
  if (const auto result = driver->cuMemAlloc(&memory, count * sizeof(TensorMap));
      result != CUDA_SUCCESS)
    return driver->failed("cuMemAlloc", result);
  array.driver_ = std::move(driver);
  array.log_ = std::move(log);
  array.slots_ = reinterpret_cast<const TensorMap*>(static_cast<std::uintptr_t>(memory));
  array.count_ = count;
  array.generation_ = fork_generation();
  return array;
}

TensorMapArray::TensorMapArray(TensorMapArray&& other) noexcept {
  *this = std::move(other);
}

TensorMapArray& TensorMapArray::operator=(TensorMapArray&& other) noexcept {
  TensorMapArray taken;  // takes away what was here
  const auto swap = [](TensorMapArray& one, TensorMapArray& another) {
    std::swap(one.driver_, another.driver_);
    std::swap(one.log_, another.log_);
    std::swap(one.slots_, another.slots_);
    std::swap(one.count_, another.count_);
    std::swap(one.generation_, another.generation_);
  };
  swap(taken, other);
  swap(taken, *this);
  return *this;
}

TensorMapArray::~TensorMapArray() {
  // In a forked child the driver is not ours any more; it must not be called.
  if (slots_ == nullptr || generation_ != fork_generation()) return;
  const OutsideCapture outside(*driver_);
  const auto result = driver_->cuMemFree(reinterpret_cast<CUdeviceptr>(slots_));
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  if (const auto log = log_.lock(); log && *log)
    (*log)(LogLevel::warning, "an array of " + std::to_string(count_) + " tensor maps: " +
                                  driver_->failed("cuMemFree", result).message());
}

Status TensorMapArray::set(std::size_t index, const TensorMap& map, CUstream stream) noexcept {
  if (index >= count_)
    return Error(ErrorCode::invalid_argument, "there is no tensor map " + std::to_string(index) +
                                                  "; the array has " + std::to_string(count_));
  if (generation_ != fork_generation()) return forked_error();
  // A copy would read host memory later, when a captured graph is replayed or where the device
  // reads pageable memory itself. These writes carry their values.
  std::array<CUstreamBatchMemOpParams, std::size(TensorMap{}.words)> writes{};
  const auto slot = reinterpret_cast<CUdeviceptr>(address(index));
  for (std::size_t i = 0; i < writes.size(); ++i) {
    auto& write = writes[i].writeValue;
    write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    write.address = slot + i * sizeof(map.words[0]);
    write.value64 = map.words[i];
    write.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  }
  const auto result =
      driver_->cuStreamBatchMemOp(stream, static_cast<unsigned>(writes.size()), writes.data(), 0);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return Error(ErrorCode::capture_active,
                 "tensor map " + std::to_string(index) +
                     ": the legacy default stream would join a capture that another stream of this "
                     "context is in; set it in that stream, or after the capture");
  return result == CUDA_SUCCESS ? Status{} : driver_->failed("cuStreamBatchMemOp", result);
}

}  // namespace kiln
