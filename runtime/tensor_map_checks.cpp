#include "runtime/tensor_map_checks.hpp"

#include <cinttypes>
#include <cstdio>
#include <string>

namespace kiln {
namespace {

struct ElementFacts {
  const char* name;
  unsigned bits;
  bool floating;
  bool padded;
};

// In the order of ElementType.
constexpr ElementFacts kElements[] = {
    {"u8", 8, false, false},          {"u16", 16, false, false},
    {"u32", 32, false, false},        {"i32", 32, false, false},
    {"u64", 64, false, false},        {"i64", 64, false, false},
    {"f16", 16, true, false},         {"f32", 32, true, false},
    {"f64", 64, true, false},         {"bf16", 16, true, false},
    {"f32_flush", 32, true, false},   {"tf32", 32, true, false},
    {"tf32_flush", 32, true, false},  {"u4x16", 4, false, false},
    {"u4x16_padded", 4, false, true}, {"u6x16_padded", 6, false, true},
};
static_assert(std::size(kElements) == static_cast<std::size_t>(ElementType::u6x16_padded) + 1);

constexpr const char* kSwizzles[] = {"none",
                                     "bytes_32",
                                     "bytes_64",
                                     "bytes_128",
                                     "bytes_128_atom_32",
                                     "bytes_128_atom_32_flip_8",
                                     "bytes_128_atom_64"};
static_assert(std::size(kSwizzles) == static_cast<std::size_t>(Swizzle::bytes_128_atom_64) + 1);

constexpr std::uint64_t kMaxExtent = 1ULL << 32;
constexpr std::uint64_t kStrideLimit = 1ULL << 40;
constexpr unsigned kMaxBox = 256;
constexpr unsigned kMaxElementStride = 8;
constexpr unsigned kChunkBytes = 16;
constexpr unsigned kPaddedBox = 128;

const ElementFacts& facts(const TensorMapSpec& spec) {
  return kElements[static_cast<std::size_t>(spec.type)];
}

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

std::string item(const char* field, unsigned index) {
  return std::string(field) + '[' + std::to_string(index) + ']';
}

Error bad(const std::string& what) {
  return {ErrorCode::invalid_argument, "tensor map: " + what};
}

// Of the address and of every stride.
unsigned alignment(const TensorMapSpec& spec) {
  return spec.interleave == Interleave::bytes_32 || facts(spec).padded ? 32 : 16;
}

std::string alignment_reason(const TensorMapSpec& spec) {
  if (spec.interleave == Interleave::bytes_32) return " with Interleave::bytes_32";
  return facts(spec).padded ? std::string(" with elements of ") + facts(spec).name : std::string();
}

std::string name_of(Swizzle swizzle) {
  return std::string("Swizzle::") + kSwizzles[static_cast<std::size_t>(swizzle)];
}

unsigned span_of(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none:
      return 0;
    case Swizzle::bytes_32:
      return 32;
    case Swizzle::bytes_64:
      return 64;
    default:
      return 128;
  }
}

Status check_choices(const TensorMapSpec& spec) {
  if (static_cast<std::size_t>(spec.type) >= std::size(kElements))
    return bad("type is " + text(static_cast<unsigned>(spec.type)) + ", which no ElementType is");
  if (static_cast<std::size_t>(spec.swizzle) >= std::size(kSwizzles))
    return bad("swizzle is " + text(static_cast<unsigned>(spec.swizzle)) + ", which no Swizzle is");
  if (spec.rank < 1 || spec.rank > kMaxTensorRank)
    return bad("rank is " + text(spec.rank) + "; a tensor has 1 to " + text(kMaxTensorRank) +
               " dimensions");
  if (spec.interleave != Interleave::none && spec.rank < 3)
    return bad("rank is " + text(spec.rank) +
               "; an interleaved layout has at least 3 dimensions: use Interleave::none");
  if (spec.out_of_bounds == OutOfBounds::nan && !facts(spec).floating)
    return bad("out_of_bounds is nan with elements of " + std::string(facts(spec).name) +
               ", which have none: use OutOfBounds::zero");
  return {};
}

Status check_extents(const TensorMapSpec& spec) {
  for (unsigned i = 0; i < spec.rank; ++i)
    if (spec.extents[i] == 0 || spec.extents[i] > kMaxExtent)
      return bad(item("extents", i) + " is " + text(spec.extents[i]) +
                 " elements; a dimension has 1 to 2^32");
  const unsigned multiple = facts(spec).padded                ? kPaddedBox
                            : spec.type == ElementType::u4x16 ? 2
                                                              : 1;
  if (spec.extents[0] % multiple != 0)
    return bad("extents[0] is " + text(spec.extents[0]) + " elements of " + facts(spec).name +
               ", of which rows hold a multiple of " + text(multiple) + ": pad the rows");
  return {};
}

Status check_strides(const TensorMapSpec& spec) {
  for (unsigned i = 0; i + 1 < spec.rank; ++i) {
    if (spec.strides_bytes[i] % alignment(spec) != 0)
      return bad(item("strides_bytes", i) + " (of dimension " + text(i + 1) + ") is " +
                 text(spec.strides_bytes[i]) + " bytes, no multiple of " + text(alignment(spec)) +
                 alignment_reason(spec) + ": pad the rows");
    if (spec.strides_bytes[i] >= kStrideLimit)
      return bad(item("strides_bytes", i) + " (of dimension " + text(i + 1) + ") is " +
                 text(spec.strides_bytes[i]) + " bytes; a stride is below 2^40: split the tensor");
  }
  return {};
}

Status check_box(const TensorMapSpec& spec) {
  for (unsigned i = 0; i < spec.rank; ++i)
    if (spec.box[i] < 1 || spec.box[i] > kMaxBox)
      return bad(item("box", i) + " is " + text(spec.box[i]) + " elements; a box has 1 to " +
                 text(kMaxBox) + " in each dimension: copy a larger tile as several boxes");
  const auto& element = facts(spec);
  if (element.padded && spec.box[0] != kPaddedBox)
    return bad("box[0] is " + text(spec.box[0]) + " elements of " + element.name +
               ", of which a box row holds " + text(kPaddedBox));
  if (spec.interleave != Interleave::none) return {};
  const auto row_bits = spec.box[0] * element.bits;
  if (row_bits % (8 * kChunkBytes) != 0)
    return bad("box[0] is " + text(spec.box[0]) + " elements of " + element.name + " = " +
               text(row_bits / 8) + " bytes, no multiple of " + text(kChunkBytes) +
               " bytes: use a multiple of " + text(8 * kChunkBytes / element.bits) + " elements");
  const auto span = span_of(spec.swizzle);
  if (spec.swizzle != Swizzle::none && row_bits / 8 > span)
    return bad("box[0] is " + text(spec.box[0]) + " elements of " + element.name + " = " +
               text(row_bits / 8) + " bytes, more than the " + text(span) + " that " +
               name_of(spec.swizzle) + " spans: use a box of at most " +
               text(8 * span / element.bits) + " elements, or another swizzle");
  return {};
}

Status check_element_strides(const TensorMapSpec& spec) {
  for (unsigned i = 0; i < spec.rank; ++i)
    if (spec.element_strides[i] < 1 || spec.element_strides[i] > kMaxElementStride)
      return bad(item("element_strides", i) + " is " + text(spec.element_strides[i]) +
                 "; an element stride is 1 to " + text(kMaxElementStride));
  // The driver ignores it, and the copy would not be what was asked for.
  if (spec.interleave == Interleave::none && spec.element_strides[0] != 1)
    return bad("element_strides[0] is " + text(spec.element_strides[0]) +
               ", but the innermost dimension is copied whole without an interleave: use 1");
  return {};
}

Status check_swizzle(const TensorMapSpec& spec) {
  if (spec.interleave == Interleave::bytes_32 && spec.swizzle != Swizzle::bytes_32)
    return bad(name_of(spec.swizzle) +
               " with Interleave::bytes_32, which goes with Swizzle::bytes_32 only");
  const auto& element = facts(spec);
  if (!element.padded) return {};
  const bool six_bits = spec.type == ElementType::u6x16_padded;
  if (six_bits && spec.interleave != Interleave::none)
    return bad("elements of u6x16_padded cannot be interleaved: use Interleave::none");
  if (spec.swizzle == Swizzle::none || spec.swizzle == Swizzle::bytes_128 ||
      spec.swizzle == Swizzle::bytes_128_atom_32 ||
      (six_bits && spec.swizzle == Swizzle::bytes_128_atom_64))
    return {};
  return bad(name_of(spec.swizzle) + " with elements of " + element.name +
             ": use none, bytes_128 or bytes_128_atom_32" +
             (six_bits ? ", or bytes_128_atom_64 for stores" : ""));
}

}  // namespace

Status check_tensor_address(const TensorMapSpec& spec) {
  const auto address = reinterpret_cast<std::uintptr_t>(spec.address);
  if (address == 0) return bad("address is null: give the tensor's device address");
  if (address % alignment(spec) == 0) return {};
  char shown[24];
  std::snprintf(shown, sizeof shown, "0x%" PRIxPTR, address);
  return bad(std::string("address is ") + shown + ", no multiple of " + text(alignment(spec)) +
             " bytes" + alignment_reason(spec) +
             ": move the tensor, or start at an aligned element and shift the coordinates");
}

Status check_tensor_map(const TensorMapSpec& spec) {
  for (const auto check : {check_choices, check_tensor_address, check_extents, check_strides,
                           check_box, check_element_strides, check_swizzle})
    if (auto status = check(spec); !status) return status;
  return {};
}

}  // namespace kiln
