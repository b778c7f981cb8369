#include "runtime/source_scan.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/source_cursor.hpp"

namespace kiln {
namespace {

constexpr std::array<std::string_view, 3> kTimeMacros{"__DATE__", "__TIME__", "__TIMESTAMP__"};
// The time macros first. The last is the toolkit's wrapper, which asks without a further mention.
constexpr std::array<std::string_view, PasteParts::kNames> kPastedNames{
    kTimeMacros[0],       kTimeMacros[1], kTimeMacros[2],     "__has_include",
    "__has_include_next", "__has_embed",  "_CCCL_HAS_INCLUDE"};
// Every part of a name is a part of this, and no other identifier is.
constexpr std::string_view kAllNames =
    "__DATE__ __TIME__ __TIMESTAMP__ __has_include_next __has_embed _CCCL_HAS_INCLUDE";
static_assert(std::all_of(kPastedNames.begin(), kPastedNames.end(), [](std::string_view name) {
  return name.size() <= PasteParts::kLongest && kAllNames.find(name) != std::string_view::npos;
}));
// Those of macros first, which mean the file that they are expanded in.
constexpr std::size_t kPlaceMacros = 2;
constexpr std::array<std::string_view, 5> kPlaceNames{
    "__FILE__", "__BASE_FILE__", "__builtin_FILE", "__builtin_source_location", "source_location"};
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongestOperand = 200;

bool ends_with_ignoring_case(std::string_view text, std::string_view lower_end) {
  if (text.size() < lower_end.size()) return false;
  return std::equal(lower_end.begin(), lower_end.end(),
                    text.end() - static_cast<std::ptrdiff_t>(lower_end.size()),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

bool is_time_macro(std::string_view name) {
  return std::find(kTimeMacros.begin(), kTimeMacros.end(), name) != kTimeMacros.end();
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : cursor_(text) {}

  SourceScan run() {
    while (!cursor_.done()) step();
    if (scan_.parts.line != 0)
      for (const auto name : scan_.parts.names()) pasted(name);
    return std::move(scan_);
  }

 private:
  void step() {
    const char c = cursor_.peek();
    if (c == '\n') {
      cursor_.next();
      line_start_ = true;
      in_condition_ = in_define_ = false;
    } else if (is_blank(c)) {
      cursor_.next();
    } else if (!skip_comment()) {
      const bool starts_line = std::exchange(line_start_, false);
      if (c == '#' || (c == '%' && cursor_.peek_second() == ':')) {
        hash(starts_line);
      } else {
        token(c);
      }
    }
  }

  void token(char c) {
    if (is_identifier_start(c)) {
      identifier();
    } else if (is_digit(c) || (c == '.' && is_digit(cursor_.peek_second()))) {
      number();
    } else if (c == '"' || c == '\'') {
      literal();
      literal_suffix();
    } else {
      if (c == ',') in_condition_ = false;
      cursor_.next();
      forget_paste();
    }
  }

  bool skip_comment() {
    if (cursor_.peek() != '/') return false;
    const char second = cursor_.peek_second();
    if (second == '/') {
      while (!cursor_.done() && cursor_.peek() != '\n') cursor_.next();
      return true;
    }
    if (second != '*') return false;
    cursor_.next();
    cursor_.next();
    while (!cursor_.done()) {
      const char c = cursor_.next();
      if (c == '\n') line_start_ = true;  // NVRTC takes a # behind such a comment for a directive
      if (c == '*' && cursor_.take('/')) break;
    }
    return true;
  }

  void skip_blanks_in_line() {
    while (!cursor_.done() && (is_blank(cursor_.peek()) || skip_comment()))
      if (!cursor_.done() && is_blank(cursor_.peek())) cursor_.next();
  }

  void take_hash() {
    if (!cursor_.take('#')) {
      cursor_.next();
      cursor_.next();
    }
  }

  void hash(bool starts_line) {
    take_hash();
    const char c = cursor_.peek();
    if (c == '#' || (c == '%' && cursor_.peek_second() == ':')) {
      take_hash();
      pasting_ = true;
      if (scan_.parts.line == 0) scan_.parts.line = cursor_.line();
      return;
    }
    forget_paste();
    if (!starts_line) return;
    skip_blanks_in_line();
    if (!is_identifier_start(cursor_.peek()) || cursor_.done()) return;
    const SourceCursor start = cursor_;
    const auto line = cursor_.line();
    const auto name = word();
    if (name == "include" || name == "import") {
      operand(IncludeKind::include, UnknownKind::computed_include, line);
    } else if (name == "include_next") {
      operand(IncludeKind::include_next, UnknownKind::computed_include, line);
    } else if (name == "embed") {
      skip_blanks_in_line();
      unknown(UnknownKind::embed, line);
    } else if (name == "define") {
      in_define_ = true;
      skip_blanks_in_line();
      scan_.parts.see(word());  // a macro of the name __has_include asks for nothing
    } else if (name == "ifdef" || name == "ifndef" || name == "elifdef" || name == "elifndef" ||
               name == "undef") {
      skip_blanks_in_line();
      word();
    } else {
      in_condition_ = name == "if" || name == "elif";
      if (!in_condition_) cursor_ = start;  // in a macro's text a # may stand before any name
    }
  }

  // A header name, or the note that it is computed. An #include of nothing is an error, but what
  // __has_include has on its line can be a part of a macro's arguments only.
  void operand(IncludeKind kind, UnknownKind otherwise, unsigned line) {
    const bool asks = otherwise == UnknownKind::computed_has_include;
    skip_blanks_in_line();
    const char open = cursor_.peek();
    if (!asks && (cursor_.done() || open == '\n')) return;
    if (open != '<' && open != '"') return unknown(otherwise, line);
    const SourceCursor start = cursor_;
    const char close = open == '<' ? '>' : '"';
    cursor_.next();
    std::string spelling;
    while (!cursor_.done() && cursor_.peek() != close && cursor_.peek() != '\n')
      spelling += cursor_.next();
    if (!cursor_.take(close) || spelling.empty()) {
      if (!asks) return;
      cursor_ = start;
      return unknown(otherwise, line);
    }
    scan_.includes.push_back(
        {std::move(spelling), open == '<' ? IncludeForm::angle : IncludeForm::quoted, kind, line});
  }

  void unknown(UnknownKind kind, unsigned line) {
    SourceCursor ahead = cursor_;  // the operand's tokens are still to be looked at
    std::string text;
    while (!ahead.done() && ahead.peek() != '\n' && ahead.peek() != '\r' &&
           text.size() < kLongestOperand)
      text += ahead.next();
    while (!text.empty() && is_blank(text.back())) text.pop_back();
    scan_.unknowns.push_back({kind, std::move(text), line});
  }

  std::string word() {
    std::string text;
    while (!cursor_.done() && is_identifier_part(cursor_.peek())) text += cursor_.next();
    return text;
  }

  void identifier(bool is_suffix = false) {
    const auto line = cursor_.line();
    word_.clear();
    while (!cursor_.done() && is_identifier_part(cursor_.peek())) word_ += cursor_.next();
    if (!is_suffix && cursor_.peek() == '"' && word_.size() <= 3 && word_.back() == 'R' &&
        (word_ == "R" || word_ == "LR" || word_ == "uR" || word_ == "UR" || word_ == "u8R")) {
      raw_string();
      return literal_suffix();
    }
    scan_.parts.see(word_);
    joined_ = pasting_ ? joined_ + word_ : word_;
    pasting_ = false;
    check_time(word_, line);
    check_time(joined_, line);
    check_place(word_);
    check_place(joined_);
    const bool next_form = ends_with_ignoring_case(joined_, "has_include_next");
    if (next_form || ends_with_ignoring_case(joined_, "has_include"))
      has_include(next_form ? IncludeKind::include_next : IncludeKind::has_include,
                  UnknownKind::computed_has_include, line);
    else if (word_ == "__has_embed" || joined_ == "__has_embed")
      has_include(IncludeKind::has_include, UnknownKind::embed, line);
    else if (in_condition_)
      condition_word();
  }

  // The operand of "defined" asks for nothing. In a macro's arguments it is no operand yet: the
  // macro can paste something before "defined" that makes it go away.
  void condition_word() {
    skip_blanks_in_line();
    const char next = cursor_.peek();
    if (word_ != "defined") {
      if (next == '(' || is_identifier_start(next)) in_condition_ = false;
      return;
    }
    if (cursor_.take('(')) skip_blanks_in_line();
    if (!cursor_.done() && is_identifier_start(cursor_.peek())) word();
  }

  // Without an operand the name can go on as a macro's text or argument, and ask elsewhere.
  void has_include(IncludeKind kind, UnknownKind otherwise, unsigned line) {
    if (!joined_.starts_with("__has_")) in_condition_ = false;  // a macro, with arguments
    skip_blanks_in_line();
    if (!cursor_.take('(')) {
      scan_.unknowns.push_back({otherwise, joined_.substr(0, kLongestOperand), line});
      return;
    }
    if (otherwise == UnknownKind::embed) return unknown(otherwise, line);
    operand(kind, otherwise, line);
  }

  void pasted(std::string_view name) {
    if (is_time_macro(name)) {
      if (!scan_.time_macro) scan_.time_macro = TimeMacroUse{std::string(name), scan_.parts.line};
      return;
    }
    const auto kind =
        name == "__has_embed" ? UnknownKind::embed : UnknownKind::computed_has_include;
    scan_.unknowns.push_back({kind, std::string(name), scan_.parts.line});
  }

  void check_time(std::string_view name, unsigned line) {
    if (!scan_.time_macro && name.starts_with("__") && is_time_macro(name))
      scan_.time_macro = TimeMacroUse{std::string(name), line};
  }

  void check_place(std::string_view name) {
    const auto* const found = std::find(kPlaceNames.begin(), kPlaceNames.end(), name);
    if (found == kPlaceNames.end()) return;
    scan_.names_place = true;
    if (in_define_ || found >= kPlaceNames.begin() + kPlaceMacros) scan_.lends_place = true;
  }

  // Digit separators must not open character literals.
  void number() {
    word_.clear();
    while (!cursor_.done()) {
      const char c = cursor_.peek();
      if (c == '\'' ? !is_identifier_part(cursor_.peek_second())
                    : !is_identifier_part(c) && c != '.')
        break;
      word_ += cursor_.next();
    }
    joined_ = pasting_ ? joined_ + word_ : word_;
    pasting_ = false;
  }

  // An unterminated literal ends with its line, as in "#error don't".
  void literal() {
    const char close = cursor_.next();
    while (!cursor_.done() && cursor_.peek() != '\n') {
      const char c = cursor_.next();
      if (c == close) return;
      if (c == '\\' && cursor_.peek() != '\n') cursor_.next();
    }
  }

  // A name that directly follows a literal belongs to it, and is no prefix of the next one.
  void literal_suffix() {
    forget_paste();
    if (!cursor_.done() && is_identifier_start(cursor_.peek())) identifier(true);
  }

  // A raw string without an end is taken for an ordinary one, so that it hides at most a line.
  // To NVRTC, which complains of most of them only where the code is not skipped, a delimiter may
  // hold anything.
  void raw_string() {
    constexpr std::size_t kLongestDelimiter = 16;
    const SourceCursor start = cursor_;
    cursor_.next();
    const auto rest = cursor_.raw_rest();
    const auto open = rest.find_first_of("(\n");
    if (open <= kLongestDelimiter && rest[open] == '(') {
      const auto end = ')' + std::string(rest.substr(0, open)) + '"';
      const auto close = rest.find(end, open);
      if (close != std::string_view::npos) return cursor_.skip_raw(close + end.size());
    }
    cursor_ = start;
    literal();
  }

  void forget_paste() {
    joined_.clear();
    pasting_ = false;
  }

  SourceCursor cursor_;
  SourceScan scan_;
  std::string word_;
  std::string joined_;  // what the ## chain up to here makes
  bool pasting_ = false;
  bool line_start_ = true;
  bool in_define_ = false;
  bool in_condition_ = false;  // in #if, with no macro so far that could take arguments
};

}  // namespace

void PasteParts::see(std::string_view token) noexcept {
  if (token.empty() || token.size() >= kLongest || kAllNames.find(token) == std::string_view::npos)
    return;
  for (std::size_t i = 0; i < kNames; ++i) {
    const auto name = kPastedNames[i];
    if (token.size() >= name.size()) continue;
    for (auto at = name.find(token); at != std::string_view::npos; at = name.find(token, at + 1))
      lengths[i][at] |= std::uint32_t{1} << token.size();
  }
}

PasteParts PasteParts::with(const PasteParts& other) const noexcept {
  auto both = *this;
  for (std::size_t i = 0; i < kNames; ++i)
    for (std::size_t at = 0; at < kLongest; ++at) both.lengths[i][at] |= other.lengths[i][at];
  if (both.line == 0) both.line = other.line;
  return both;
}

std::vector<std::string_view> PasteParts::names() const {
  // Ordinary code has T, I, M, E and _ as names: a few parts of one letter make none.
  constexpr unsigned kMostSingles = 2;
  std::vector<std::string_view> found;
  for (std::size_t i = 0; i < kNames; ++i) {
    const auto size = kPastedNames[i].size();
    std::array<unsigned, kLongest + 1> singles;  // the fewest up to each place
    singles.fill(kMostSingles + 1);
    singles[0] = 0;
    for (std::size_t at = 0; at < size; ++at)
      for (std::size_t length = 1; at + length <= size; ++length)
        if ((lengths[i][at] >> length & 1U) != 0)
          singles[at + length] =
              std::min(singles[at + length], singles[at] + (length == 1 ? 1U : 0U));
    if (singles[size] <= kMostSingles) found.push_back(kPastedNames[i]);
  }
  return found;
}

SourceScan scan_source(std::string_view text) {
  const auto body = without_byte_order_mark(text);
  auto scan = Scanner(body).run();
  scan.byte_order_mark = body.size() != text.size();
  return scan;
}

std::string_view without_byte_order_mark(std::string_view text) noexcept {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

}  // namespace kiln
