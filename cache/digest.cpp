#include "kiln/cache/digest.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// Compiled in here and nowhere else: no library to link or to ship.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kiln::cache {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kHalfDigits = 16;

void put_half(char* to, std::uint64_t half) noexcept {
  for (int shift = 60; shift >= 0; shift -= 4) *to++ = kHexDigits[(half >> shift) & 0xF];
}

std::optional<std::uint64_t> half_from(std::string_view text) noexcept {
  std::uint64_t half = 0;
  for (const char digit : text) {
    const auto value = kHexDigits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    half = half << 4 | value;
  }
  return half;
}

Digest hashed(const void* bytes, std::size_t size) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes, size);
  return {.high = hash.high64, .low = hash.low64};
}

}  // namespace

std::string Digest::hex() const {
  std::string text(2 * kHalfDigits, '0');
  put_half(text.data(), high);
  put_half(text.data() + kHalfDigits, low);
  return text;
}

std::optional<Digest> Digest::from_hex(std::string_view text) noexcept {
  if (text.size() != 2 * kHalfDigits) return std::nullopt;
  const auto high = half_from(text.substr(0, kHalfDigits));
  const auto low = half_from(text.substr(kHalfDigits));
  if (!high || !low) return std::nullopt;
  return Digest{.high = *high, .low = *low};
}

Digest digest_of(std::span<const std::byte> bytes) noexcept {
  return hashed(static_cast<const void*>(bytes.data()), bytes.size());
}

Digest digest_of(std::string_view text) noexcept {
  return hashed(static_cast<const void*>(text.data()), text.size());
}

}  // namespace kiln::cache
