#include "runtime/decimal_text.hpp"

#include <array>
#include <charconv>
#include <cstddef>

namespace kiln {
namespace {

// Longer than any double in full: 309 digits before the point.
using Digits = std::array<char, 400>;

std::string text_of(const Digits& digits, const std::to_chars_result& result) {
  const auto count = static_cast<std::size_t>(result.ptr - digits.data());
  return result.ec == std::errc() ? std::string(digits.data(), count) : std::string("0");
}

}  // namespace

std::string decimal_text(double value, int decimals) {
  Digits digits{};
  return text_of(digits, std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                       std::chars_format::fixed, decimals));
}

std::string decimal_text(double value) {
  Digits digits{};
  return text_of(digits, std::to_chars(digits.data(), digits.data() + digits.size(), value));
}

}  // namespace kiln
