// Little-endian integers in bytes, whatever the machine's order. Threads: pure functions.
#pragma once

#include <cstddef>

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

}  // namespace kiln::cache
