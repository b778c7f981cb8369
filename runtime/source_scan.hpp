// Finds in one source text everything that could make the preprocessor read another file, the
// macros that read the clock, and what gives the path of a file.
//
// It lexes (splices, comments, literals, digraphs) but evaluates no conditional on purpose: what it
// finds is a superset of what any compile of the text can read.
// Threads: pure functions. Any bytes are fine as input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class IncludeForm : unsigned char { quoted, angle };

enum class IncludeKind : unsigned char {
  include,       ///< #include, and #import, which NVRTC refuses
  include_next,  ///< #include_next or __has_include_next
  has_include,   ///< __has_include, or a macro whose name ends so
};

struct IncludeUse {
  std::string spelling{};
  IncludeForm form = IncludeForm::quoted;
  IncludeKind kind = IncludeKind::include;
  unsigned line = 0;  ///< counted from 1
  bool operator==(const IncludeUse&) const = default;
};

enum class UnknownKind : unsigned char {
  computed_include,      ///< #include MACRO
  computed_has_include,  ///< __has_include(MACRO), or __has_include without a literal operand
  embed,                 ///< #embed or __has_embed
};

/// A place where the text names a file in a way that only the preprocessor can work out.
struct UnknownUse {
  UnknownKind kind = UnknownKind::computed_include;
  std::string text{};  ///< the operand as it stands there, or the name that has none
  unsigned line = 0;
  bool operator==(const UnknownUse&) const = default;
};

struct TimeMacroUse {
  std::string name{};
  unsigned line = 0;
  bool operator==(const TimeMacroUse&) const = default;
};

/// The parts of __TIME__, __has_include and the like that stand in a text as tokens of their own,
/// and whether it pastes. The ## may stand in another file than the parts, so what one file holds
/// decides nothing: join all that one compile reads by with().
struct PasteParts {
  static constexpr std::size_t kNames = 7;
  static constexpr std::size_t kLongest = 18;
  /// For each name and place in it the lengths of the parts seen there, one bit each.
  std::array<std::array<std::uint32_t, kLongest>, kNames> lengths{};
  unsigned line = 0;  ///< of the first ##; 0 for none

  void see(std::string_view token) noexcept;
  [[nodiscard]] PasteParts with(const PasteParts& other) const noexcept;
  /// The names that ## can make of the parts.
  std::vector<std::string_view> names() const;
  bool operator==(const PasteParts&) const = default;
};

/// Also fit for a text that is no file, such as a name expression: it depends on the clock or asks
/// for a file exactly if `time_macro` is set, or `unknowns` or `includes` hold anything.
struct SourceScan {
  std::vector<IncludeUse> includes{};
  std::vector<UnknownUse> unknowns{};
  /// The first __DATE__, __TIME__ or __TIMESTAMP__, spelled out or pasted together with ##.
  std::optional<TimeMacroUse> time_macro{};
  PasteParts parts{};
  /// Whether __FILE__ or the like is named, which gives the path of this file,
  bool names_place = false;
  /// and so in a macro, or as what can be a default argument: of the file that uses that.
  bool lends_place = false;
  bool byte_order_mark = false;
};

SourceScan scan_source(std::string_view text);

/// `text` without a leading UTF-8 byte-order mark, which NVRTC cannot compile.
std::string_view without_byte_order_mark(std::string_view text) noexcept;

}  // namespace kiln
