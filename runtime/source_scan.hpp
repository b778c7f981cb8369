// Finds in one source text everything that could make the preprocessor read another file, and the
// macros that read the clock.
//
// It lexes (splices, comments, literals, digraphs) but evaluates no conditional on purpose: what it
// finds is a superset of what any compile of the text can read.
// Threads: pure functions. Any bytes are fine as input.
#pragma once

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
  computed_has_include,  ///< __has_include(MACRO), or the operator or a piece of it in a macro
  embed,                 ///< #embed or __has_embed
};

/// A place where the text names a file in a way that only the preprocessor can work out.
struct UnknownUse {
  UnknownKind kind = UnknownKind::computed_include;
  std::string text{};  ///< the operand as it stands there
  unsigned line = 0;
  bool operator==(const UnknownUse&) const = default;
};

struct TimeMacroUse {
  std::string name{};
  unsigned line = 0;
  bool operator==(const TimeMacroUse&) const = default;
};

struct SourceScan {
  std::vector<IncludeUse> includes{};
  std::vector<UnknownUse> unknowns{};
  /// The first __DATE__, __TIME__ or __TIMESTAMP__, spelled out or in a piece that pasting, here or
  /// in another file, can make one of ("__TI").
  std::optional<TimeMacroUse> time_macro{};
  bool byte_order_mark = false;
};

SourceScan scan_source(std::string_view text);

/// `text` without a leading UTF-8 byte-order mark, which NVRTC cannot compile.
std::string_view without_byte_order_mark(std::string_view text) noexcept;

}  // namespace kiln
