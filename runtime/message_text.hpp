// What messages are put together from.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// "1 kernel", "2 kernels".
inline std::string counted(std::uint64_t count, std::string_view one) {
  return std::to_string(count).append(" ").append(one).append(count == 1 ? "" : "s");
}

inline std::string quote(std::string_view text) {
  return '"' + std::string(text) + '"';
}

inline std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (const auto& part : parts) text.append(text.empty() ? "" : between).append(part);
  return text;
}

}  // namespace kiln
