// Integers and digests in the bytes of entries and bundles, least significant byte first.
//
// Threads: pure functions. The caller sees to it that the bytes are there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kiln/cache/digest.hpp"

namespace kiln::cache {

template <class Integer>
void put(std::byte* to, Integer value) noexcept {
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    to[i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
}

template <class Integer>
Integer get(const std::byte* from) noexcept {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    value |= static_cast<Integer>(static_cast<Integer>(from[i]) << (8 * i));
  return value;
}

inline void put_digest(std::byte* to, const Digest& digest) noexcept {
  put(to, digest.low);
  put(to + 8, digest.high);
}

inline Digest get_digest(const std::byte* from) noexcept {
  return {.high = get<std::uint64_t>(from + 8), .low = get<std::uint64_t>(from)};
}

}  // namespace kiln::cache
