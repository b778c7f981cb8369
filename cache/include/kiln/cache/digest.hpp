// A 128-bit XXH3 digest: the name of an entry and the guard of its bytes.
//
// It catches accidents and is never a signature: nobody may be trusted because of it.
// Threads: values and pure functions.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kiln/cache/api.hpp"

namespace kiln::cache {

struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Digest&) const = default;
  /// 32 lower-case hexadecimal digits, high half first.
  KILN_API std::string hex() const;
  /// The inverse of hex(); empty unless `text` is exactly 32 lower-case hexadecimal digits.
  KILN_API static std::optional<Digest> from_hex(std::string_view text) noexcept;
};

/// XXH3-128 of `bytes`, seed 0.
KILN_API Digest digest_of(std::span<const std::byte> bytes) noexcept;
KILN_API Digest digest_of(std::string_view text) noexcept;

}  // namespace kiln::cache
