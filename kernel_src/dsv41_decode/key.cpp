#include "kernel_src/dsv41_decode/key.hpp"

#include <bit>
#include <string>
#include <string_view>

namespace kiln::kernels::dsv41_decode {
namespace {

Error wrong(std::string_view name, std::uint64_t value, std::string_view allowed) {
  return {ErrorCode::invalid_argument, "dsv41_decode: " + std::string(name) + " is " +
                                           std::to_string(value) + "; it must be " +
                                           std::string(allowed)};
}

Status check_page(std::string_view name, u32 slots) {
  if (std::has_single_bit(slots) && slots <= kMostPageSlots) return {};
  return wrong(name, slots, "a power of two, at most " + std::to_string(kMostPageSlots));
}

}  // namespace

Status check(const Key& key) {
  if (key.heads == 0 || dsv41::kPaddedHeads % key.heads != 0)
    return wrong("heads", key.heads, "a divisor of 64");
  if (key.swa_slots == 0 || key.swa_slots > kMostListSlots)
    return wrong("swa_slots", key.swa_slots, "from 1 to " + std::to_string(kMostListSlots));
  if (key.compressed_slots > kMostListSlots)
    return wrong("compressed_slots", key.compressed_slots,
                 "0 (no compressed list) or at most " + std::to_string(kMostListSlots));
  if (key.record != Record::fp8 && key.record != Record::nvfp4)
    return wrong("record", static_cast<u8>(key.record), "0 (fp8) or 1 (nvfp4)");
  KILN_TRY(check_page("swa_page_slots", key.swa_page_slots));
  return check_page("page_slots", key.page_slots);
}

}  // namespace kiln::kernels::dsv41_decode
