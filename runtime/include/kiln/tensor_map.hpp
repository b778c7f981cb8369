// Tensor maps: the descriptors by which TMA copies tiles between global and shared memory.
//
// A kernel gets a map by one of two ABIs, and its parameter's type says which:
//   by value    const __grid_constant__ kiln::TensorMap map     argument: builder.map()
//   by pointer  const kiln::TensorMap* map                      argument: array.address(i)
// Device code has the type from "jit/tensor_map.cuh", which every program may include. By value is
// what a kernel with a few maps wants, and what a captured graph keeps. By pointer is for more maps
// than parameters hold, or for maps that change under a captured graph; such a kernel begins with
// fence.proxy.tensormap::generic.acquire.sys on each map that it uses.
//
// The cache is one entry for each place of use, and the caller owns it: a TensorMapBuilder
// remembers what its map was made of, so a repeat is a comparison. A table of all maps would pay a
// hash and a lock for each look-up, about what the driver takes to encode a map anew (55 ns).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kiln/cache/api.hpp"
#include "kiln/cuda_types.hpp"
#include "kiln/error.hpp"
#include "kiln/log.hpp"

namespace kiln {

struct DriverApi;

/// The driver's opaque descriptor, byte for byte; the same type in device code.
/// Threads: a value.
struct alignas(128) TensorMap {
  std::uint64_t words[16] = {};
  bool operator==(const TensorMap&) const = default;
};

enum class ElementType : unsigned char {
  u8,
  u16,
  u32,
  i32,
  u64,
  i64,
  f16,
  f32,
  f64,
  bf16,
  f32_flush,  ///< denormals are flushed to zero
  tf32,
  tf32_flush,
  u4x16,         ///< 4-bit values, packed in both memories
  u4x16_padded,  ///< 4-bit values; in shared memory 8 bytes of 16 are padding
  u6x16_padded,  ///< 6-bit values; in shared memory 4 bytes of 16 are padding
};

/// How the 16-byte chunks of a box row are exchanged in shared memory, and the span of bytes within
/// which they are; a row of the box is no longer than the span.
enum class Swizzle : unsigned char {
  none,
  bytes_32,
  bytes_64,
  bytes_128,
  bytes_128_atom_32,         ///< exchanges chunks of 32 bytes
  bytes_128_atom_32_flip_8,  ///< and the halves of each 16 bytes in every other row
  bytes_128_atom_64,         ///< exchanges chunks of 64 bytes
};

/// Channel-interleaved layouts such as NC/8HWC8 (16 bytes) and NC/16HWC16 (32 bytes).
enum class Interleave : unsigned char { none, bytes_16, bytes_32 };

/// How much L2 fetches from memory at once.
enum class L2Promotion : unsigned char { none, bytes_64, bytes_128, bytes_256 };

/// What a box holds where it lies outside the tensor. `nan` is for floating types only.
enum class OutOfBounds : unsigned char { zero, nan };

inline constexpr unsigned kMaxTensorRank = 5;

/// What a tensor map is made of. Dimensions run from the innermost, whose elements are contiguous;
/// of each array the first `rank` values count (of the strides, rank - 1). The rules are those that
/// cuda.h states at cuTensorMapEncodeTiled; strides need not grow from dimension to dimension.
/// Threads: a value.
struct TensorMapSpec {
  /// In device memory: a multiple of 16 bytes, of 32 with Interleave::bytes_32 and padded types.
  const void* address = nullptr;
  ElementType type = ElementType::u8;
  /// Number of dimensions, 1 to kMaxTensorRank; at least 3 with an interleave.
  unsigned rank = 0;
  /// In elements, 1 to 2^32.
  std::array<std::uint64_t, kMaxTensorRank> extents{};
  /// In bytes, of dimension 1 and up: a multiple as the address is, below 2^40.
  std::array<std::uint64_t, kMaxTensorRank - 1> strides_bytes{};
  /// In elements, 1 to 256; without an interleave the innermost is a multiple of 16 bytes.
  std::array<std::uint32_t, kMaxTensorRank> box{};
  /// In elements, 1 to 8: of a box of 8 elements with stride 2 every second one is copied. The
  /// innermost is 1 without an interleave.
  std::array<std::uint32_t, kMaxTensorRank> element_strides{1, 1, 1, 1, 1};
  Swizzle swizzle = Swizzle::none;
  Interleave interleave = Interleave::none;
  L2Promotion l2_promotion = L2Promotion::none;
  OutOfBounds out_of_bounds = OutOfBounds::zero;
  bool operator==(const TensorMapSpec&) const = default;
};

/// What TensorMapBuilder::build did.
enum class TensorMapChange : unsigned char {
  none,     ///< the map is as it was: nothing to pass on
  address,  ///< only the address differed and was replaced
  encoded,  ///< made anew
};

/// Makes one map, and makes it again when what it describes has changed. Keep one for each tensor
/// that a kernel takes:
///
///   KILN_TRY(const auto change, builder.build(spec));  // every step
///   if (change != TensorMapChange::none) KILN_TRY(launch.set_argument(0, builder.map()));
///
/// Threads: one at a time. Lifetime: independent of the Runtime.
class KILN_API TensorMapBuilder {
 public:
  /// For the library, whose Runtime::tensor_map_builder() hands one out.
  explicit TensorMapBuilder(std::shared_ptr<const DriverApi> driver) noexcept;

  /// Makes map() describe `spec`, at the least cost: nothing when it does already,
  /// cuTensorMapReplaceAddress when only the address differs, and otherwise all checks and
  /// cuTensorMapEncodeTiled. Success allocates nothing. After an error map() is as it was.
  /// Errors  invalid_argument, naming the rule, the value and the limit; driver_failed for what
  ///         the driver refuses beyond that, such as a type that its devices lack; after a fork,
  ///         no_device.
  Result<TensorMapChange> build(const TensorMapSpec& spec);

  /// Requires a build that succeeded. Stays at its place; changes with the next build.
  const TensorMap& map() const noexcept { return map_; }

 private:
  Result<TensorMapChange> replace_address(const TensorMapSpec& spec);
  Result<TensorMapChange> encode(const TensorMapSpec& spec);

  TensorMap map_{};
  TensorMapSpec spec_{};  // of map_; rank 0 before the first build
  std::shared_ptr<const DriverApi> driver_;
  unsigned generation_ = 0;
};

/// Maps in device memory at addresses that never move, for kernels that take them by pointer.
/// Threads: set() of different slots from any threads; destruction by one, when no work that uses
/// the maps is left, with a context of the device current. Lifetime: independent of the Runtime.
class KILN_API TensorMapArray {
 public:
  /// For the library, whose Runtime::tensor_map_array() hands one out.
  static Result<TensorMapArray> allocate(std::shared_ptr<const DriverApi> driver, std::size_t count,
                                         std::weak_ptr<const LogSink> log);
  TensorMapArray() noexcept = default;
  TensorMapArray(TensorMapArray&& other) noexcept;
  TensorMapArray& operator=(TensorMapArray&& other) noexcept;
  ~TensorMapArray();

  std::size_t size() const noexcept { return count_; }
  /// Requires index < size(). The device address of a slot, as a kernel's argument.
  const TensorMap* address(std::size_t index) const noexcept { return slots_ + index; }

  /// Enqueues the writing of `map` into a slot: launches before it in `stream` see the old map,
  /// those after it the new one. The stream takes the bytes by value, so `map` may go at once, and
  /// a captured set() writes at each replay the map that it was given. Work of other streams that
  /// uses the slot is the caller's to order.
  /// Errors  invalid_argument for a slot that is not there; capture_active for the legacy stream
  ///         while another stream of the context is being captured; driver_failed; after a fork,
  ///         no_device.
  Status set(std::size_t index, const TensorMap& map, CUstream stream) noexcept;

 private:
  std::shared_ptr<const DriverApi> driver_;
  std::weak_ptr<const LogSink> log_;
  const TensorMap* slots_ = nullptr;
  std::size_t count_ = 0;
  unsigned generation_ = 0;
};

}  // namespace kiln
