#include "kernel_src/argument_checks.hpp"

#include <array>
#include <charconv>

namespace kiln::kernels {
namespace {

std::string hexadecimal(std::uintptr_t value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[value % 16]);
    value /= 16;
  } while (value != 0);
  return "0x" + digits;
}

}  // namespace

std::string text_of(float value) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

Range range_of(std::string_view name, const void* from, std::uint64_t bytes) noexcept {
  return {name, reinterpret_cast<std::uintptr_t>(from), from == nullptr ? 0 : bytes};
}

Error ArgumentChecks::wrong(std::string_view name, const std::string& value,
                            const std::string& allowed) const {
  return {ErrorCode::invalid_argument,
          std::string(kernel) + ": " + std::string(name) + " is " + value + "; " + allowed};
}

Status ArgumentChecks::pointer(std::string_view name, const void* pointer,
                               unsigned alignment) const {
  if (pointer == nullptr) return wrong(name, "null", "it must be a device pointer");
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % alignment != 0)
    return wrong(name, hexadecimal(address),
                 "it must be a multiple of " + std::to_string(alignment));
  return {};
}

Status ArgumentChecks::stride(std::string_view name, std::uint64_t stride, std::uint64_t least,
                              std::uint64_t most, std::uint64_t multiple) const {
  if (stride >= least && stride <= most && stride % multiple == 0) return {};
  const std::string of = multiple == 1 ? "" : "a multiple of " + std::to_string(multiple) + " ";
  return wrong(
      name, std::to_string(stride),
      "it must be " + of + "from " + std::to_string(least) + " to " + std::to_string(most));
}

Status ArgumentChecks::apart(const Range& written, std::span<const Range> others) const {
  for (const Range& other : others) {
    if (written.bytes == 0 || other.bytes == 0) continue;
    const bool over = written.begin < other.begin ? other.begin - written.begin < written.bytes
                                                  : written.begin - other.begin < other.bytes;
    if (over)
      return wrong(written.name, "over " + std::string(other.name),
                   "what is written must lie apart from all else; give it memory of its own");
  }
  return {};
}

}  // namespace kiln::kernels
