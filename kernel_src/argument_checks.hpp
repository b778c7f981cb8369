// What the checks of a kernel's arguments share: pointers and strides, with one form of message.
//
// Threads: a value; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kiln/error.hpp"

namespace kiln::kernels {

/// The shortest text that is this float: std::to_string shows six decimals, which may all be 0.
std::string text_of(float value);

struct ArgumentChecks {
  std::string_view kernel;  // named first in every message

  Error wrong(std::string_view name, const std::string& value, const std::string& allowed) const;

  /// That `pointer` is not null and a multiple of `alignment`.
  Status pointer(std::string_view name, const void* pointer, unsigned alignment) const;

  /// That `stride` is from `least` to `most` and a multiple of `multiple`.
  Status stride(std::string_view name, std::uint64_t stride, std::uint64_t least,
                std::uint64_t most, std::uint64_t multiple) const;
};

}  // namespace kiln::kernels
