// Text without the blanks around it.
//
// Threads: pure functions.
#pragma once

#include <string_view>

namespace kiln {

/// The byte 0 too, which ends a log of NVRTC.
inline constexpr std::string_view kBlank{" \t\r\n\0", 5};

inline std::string_view trimmed(std::string_view text) noexcept {
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace kiln
