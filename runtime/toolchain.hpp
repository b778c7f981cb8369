// The identity of an NVRTC: what stands in compile keys and reports, and never a path.
//
// Threads: a value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kiln {

struct ToolchainId {
  int major = 0;
  int minor = 0;
  /// Lower-case hex of the library's ELF build-id, or "xxh3-" and a digest of its content.
  std::string nvrtc_build_id{};
  std::string builtins_build_id{};
  bool operator==(const ToolchainId&) const = default;

  /// One line: "nvrtc 13.0 65be0db3... builtins 08d17e32...", with the build-ids whole.
  std::string to_text() const;
  /// The inverse of to_text(); empty unless `text` is exactly such a line.
  static std::optional<ToolchainId> from_text(std::string_view text);

  /// Whether `wanted` names this one: its version ("13.0"), its whole text, or at least eight
  /// leading digits of its NVRTC build-id.
  bool matches(std::string_view wanted) const;
};

/// Orders the newest version first; among equal versions by build-id, so that it is total.
bool newer_first(const ToolchainId& a, const ToolchainId& b);

}  // namespace kiln
