// What the checks of a kernel's arguments share: pointers, strides and what may not lie over each
// other, with one form of message.
//
// Threads: a value; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kiln/error.hpp"

namespace kiln::kernels {

/// The shortest text that is this float: std::to_string shows six decimals, which may all be 0.
std::string text_of(float value);

/// Memory of an argument.
struct Range {
  std::string_view name;
  std::uintptr_t begin = 0;
  std::uint64_t bytes = 0;
};

/// Empty where the argument is null.
Range range_of(std::string_view name, const void* from, std::uint64_t bytes) noexcept;

struct ArgumentChecks {
  std::string_view kernel;  // named first in every message

  Error wrong(std::string_view name, const std::string& value, const std::string& allowed) const;

  /// That `pointer` is not null and a multiple of `alignment`.
  Status pointer(std::string_view name, const void* pointer, unsigned alignment) const;

  /// That `stride` is from `least` to `most` and a multiple of `multiple`.
  Status stride(std::string_view name, std::uint64_t stride, std::uint64_t least,
                std::uint64_t most, std::uint64_t multiple) const;

  /// That `written` shares no byte with any of `others`.
  Status apart(const Range& written, std::span<const Range> others) const;
};

}  // namespace kiln::kernels
