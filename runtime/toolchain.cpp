#include "runtime/toolchain.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "runtime/version_text.hpp"

namespace kiln {
namespace {

// Fewer digits than this would match by chance.
constexpr std::size_t kShortestPrefix = 8;
constexpr std::string_view kContentPrefix = "xxh3-";

bool is_build_id(std::string_view text) {
  if (text.starts_with(kContentPrefix)) text.remove_prefix(kContentPrefix.size());
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

bool parse_number(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string ToolchainId::to_text() const {
  return "nvrtc " + version_text(major, minor) + " " + nvrtc_build_id + " builtins " +
         builtins_build_id;
}

std::optional<ToolchainId> ToolchainId::from_text(std::string_view text) {
  std::array<std::string_view, 5> words;
  std::string_view rest = text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto space = rest.find(' ');
    words[i] = rest.substr(0, space);
    rest = space == std::string_view::npos ? std::string_view{} : rest.substr(space + 1);
  }
  const auto dot = words[1].find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  ToolchainId id;
  if (!parse_number(words[1].substr(0, dot), id.major)) return std::nullopt;
  if (!parse_number(words[1].substr(dot + 1), id.minor)) return std::nullopt;
  if (!is_build_id(words[2]) || !is_build_id(words[4])) return std::nullopt;
  id.nvrtc_build_id = words[2];
  id.builtins_build_id = words[4];
  // One spelling for one identity: keys are made of this text.
  if (id.to_text() != text) return std::nullopt;
  return id;
}

bool ToolchainId::matches(std::string_view wanted) const {
  if (wanted == version_text(major, minor) || wanted == to_text()) return true;
  return wanted.size() >= kShortestPrefix && nvrtc_build_id.starts_with(wanted) &&
         wanted != kContentPrefix;
}

bool newer_first(const ToolchainId& a, const ToolchainId& b) {
  if (std::tie(a.major, a.minor) != std::tie(b.major, b.minor))
    return std::tie(a.major, a.minor) > std::tie(b.major, b.minor);
  return std::tie(a.nvrtc_build_id, a.builtins_build_id) <
         std::tie(b.nvrtc_build_id, b.builtins_build_id);
}

}  // namespace kiln
