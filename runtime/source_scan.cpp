#include "runtime/source_scan.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace kiln {
namespace {

constexpr std::array<std::string_view, 3> kTimeMacros{"__DATE__", "__TIME__", "__TIMESTAMP__"};
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongestOperand = 200;

bool is_identifier_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_identifier_part(char c) {
  return is_identifier_start(c) || is_digit(c);
}
// Not '\n'. A lone carriage return is white space to NVRTC, not a line end.
bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r' && c != '\n') || c == '\0';
}

bool ends_with_ignoring_case(std::string_view text, std::string_view lower_end) {
  if (text.size() < lower_end.size()) return false;
  return std::equal(lower_end.begin(), lower_end.end(),
                    text.end() - static_cast<std::ptrdiff_t>(lower_end.size()),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

// A piece that only pasting can make use of, in this text or in another one: "__TI" or "AMP__" of a
// time macro, "__has_in" of __has_include. Shorter ones are names of their own.
constexpr std::size_t kShortestPiece = 4;
bool is_front_of(std::string_view piece, std::string_view name) {
  return piece.size() >= kShortestPiece && piece.size() < name.size() && name.starts_with(piece);
}
bool is_back_of(std::string_view piece, std::string_view name) {
  return piece.size() >= kShortestPiece && piece.size() < name.size() && name.ends_with(piece);
}

// Reads characters with line splices removed.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) { settle(); }

  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  unsigned line() const { return line_; }

  char next() {
    const char c = peek();
    if (done()) return c;
    if (c == '\n') ++line_;
    ++at_;
    settle();
    return c;
  }
  bool take(char wanted) {
    if (done() || peek() != wanted) return false;
    next();
    return true;
  }
  // The character after the current one.
  char peek_second() const {
    Cursor copy = *this;
    copy.next();
    return copy.peek();
  }

  // The rest of the text as it stands, splices included: for raw strings, which keep them.
  std::string_view raw_rest() const { return text_.substr(std::min(at_, text_.size())); }
  void skip_raw(std::size_t count) {
    const auto skipped = raw_rest().substr(0, count);
    line_ += static_cast<unsigned>(std::count(skipped.begin(), skipped.end(), '\n'));
    at_ += skipped.size();
    settle();
  }

 private:
  void settle() {
    while (at_ + 1 < text_.size() && text_[at_] == '\\') {
      if (text_[at_ + 1] == '\n')
        at_ += 2;
      else if (text_[at_ + 1] == '\r' && at_ + 2 < text_.size() && text_[at_ + 2] == '\n')
        at_ += 3;
      else
        return;
      ++line_;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  unsigned line_ = 1;
};

// The halves of a time macro that were seen in a text which also pastes: PASTE(__DA, TE__).
struct Halves {
  std::array<std::uint16_t, kTimeMacros.size()> front{};
  std::array<std::uint16_t, kTimeMacros.size()> back{};

  void see(std::string_view token) {
    if (!token.starts_with("__") && !token.ends_with("__")) return;
    for (std::size_t i = 0; i < kTimeMacros.size(); ++i) {
      const auto macro = kTimeMacros[i];
      if (token.size() < 2 || token.size() + 2 > macro.size()) continue;
      if (macro.starts_with(token))
        front[i] = static_cast<std::uint16_t>(front[i] | 1U << token.size());
      if (macro.ends_with(token))
        back[i] = static_cast<std::uint16_t>(back[i] | 1U << (macro.size() - token.size()));
    }
  }
  std::optional<std::string_view> joined() const {
    for (std::size_t i = 0; i < kTimeMacros.size(); ++i)
      if ((front[i] & back[i]) != 0) return kTimeMacros[i];
    return std::nullopt;
  }
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : cursor_(text) {}

  SourceScan run() {
    while (!cursor_.done()) step();
    if (!scan_.time_macro && pastes_line_ != 0)
      if (const auto name = halves_.joined())
        scan_.time_macro = TimeMacroUse{std::string(*name), pastes_line_};
    return std::move(scan_);
  }

 private:
  void step() {
    const char c = cursor_.peek();
    if (c == '\n') {
      cursor_.next();
      line_start_ = true;
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
      forget_paste();
    } else {
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
    while (!cursor_.done())
      if (cursor_.next() == '*' && cursor_.take('/')) break;
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
      if (pastes_line_ == 0) pastes_line_ = cursor_.line();
      return;
    }
    forget_paste();
    if (!starts_line) return;
    skip_blanks_in_line();
    if (!is_identifier_start(cursor_.peek()) || cursor_.done()) return;
    const auto line = cursor_.line();
    const auto name = word();
    if (name == "include" || name == "import") {
      operand(IncludeKind::include, UnknownKind::computed_include, line);
    } else if (name == "include_next") {
      operand(IncludeKind::include_next, UnknownKind::computed_include, line);
    } else if (name == "embed") {
      skip_blanks_in_line();
      unknown(UnknownKind::embed, line);
    } else if (name == "define" || name == "undef" || name == "ifdef" || name == "ifndef" ||
               name == "elifdef" || name == "elifndef") {
      skip_blanks_in_line();
      halves_.see(word());  // as a name alone __has_include asks for nothing
    }
  }

  // A header name, or the note that it is computed. Nothing for an empty operand.
  void operand(IncludeKind kind, UnknownKind otherwise, unsigned line) {
    skip_blanks_in_line();
    const char open = cursor_.peek();
    if (cursor_.done() || open == '\n') return;
    if (open != '<' && open != '"') return unknown(otherwise, line);
    const char close = open == '<' ? '>' : '"';
    cursor_.next();
    std::string spelling;
    while (!cursor_.done() && cursor_.peek() != close && cursor_.peek() != '\n')
      spelling += cursor_.next();
    if (!cursor_.take(close) || spelling.empty()) return;
    scan_.includes.push_back(
        {std::move(spelling), open == '<' ? IncludeForm::angle : IncludeForm::quoted, kind, line});
  }

  void unknown(UnknownKind kind, unsigned line) {
    Cursor ahead = cursor_;  // the operand's tokens are still to be looked at
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

  void identifier() {
    const auto line = cursor_.line();
    word_.clear();
    while (!cursor_.done() && is_identifier_part(cursor_.peek())) word_ += cursor_.next();
    if (cursor_.peek() == '"' && word_.size() <= 3 && word_.back() == 'R' &&
        (word_ == "R" || word_ == "LR" || word_ == "uR" || word_ == "UR" || word_ == "u8R")) {
      forget_paste();
      return raw_string();
    }
    if (word_.starts_with('_') || word_.ends_with('_')) halves_.see(word_);
    joined_ = pasting_ ? joined_ + word_ : word_;
    pasting_ = false;
    check_time(word_, line);
    check_time(joined_, line);
    check_pieces(line);
    const bool asked_about = std::exchange(after_defined_, word_ == "defined");
    const bool next_form = ends_with_ignoring_case(word_, "has_include_next");
    if (next_form || ends_with_ignoring_case(word_, "has_include"))
      has_include(next_form ? IncludeKind::include_next : IncludeKind::has_include,
                  UnknownKind::computed_has_include, asked_about, line);
    else if (word_ == "__has_embed")
      has_include(IncludeKind::has_include, UnknownKind::embed, asked_about, line);
  }

  // Without an operand behind it, the operator itself goes into a macro, and its operands come from
  // somewhere else. Behind "defined" it is a mere name.
  void has_include(IncludeKind kind, UnknownKind otherwise, bool asked_about, unsigned line) {
    const bool is_operator = word_.starts_with("__has_");
    skip_blanks_in_line();
    if (!cursor_.take('(')) {
      if (is_operator && !asked_about) unknown(otherwise, line);
      return;
    }
    if (otherwise == UnknownKind::embed) return unknown(otherwise, line);
    operand(kind, otherwise, line);
  }

  void check_time(std::string_view name, unsigned line) {
    if (scan_.time_macro || !name.starts_with("__")) return;
    if (std::find(kTimeMacros.begin(), kTimeMacros.end(), name) != kTimeMacros.end())
      scan_.time_macro = TimeMacroUse{std::string(name), line};
  }

  void check_pieces(unsigned line) {
    for (const auto macro : kTimeMacros)
      if (!scan_.time_macro &&
          (is_front_of(word_, macro) || (word_.ends_with("__") && is_back_of(word_, macro))))
        scan_.time_macro = TimeMacroUse{std::string(macro), line};
    if (word_.starts_with("__h") && is_front_of(word_, "__has_include_next") &&
        word_ != "__has_include")
      unknown(UnknownKind::computed_has_include, line);
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

  // A raw string without an end is taken for an ordinary one, so that it hides at most a line.
  void raw_string() {
    constexpr std::size_t kLongestDelimiter = 16;
    const auto rest = cursor_.raw_rest();
    const auto open = rest.find_first_of("( )\\\t\v\f\n\"", 1);
    if (open == std::string_view::npos || rest[open] != '(' || open > kLongestDelimiter + 1)
      return literal();
    const auto end = ')' + std::string(rest.substr(1, open - 1)) + '"';
    const auto close = rest.find(end, open);
    if (close == std::string_view::npos) return literal();
    cursor_.skip_raw(close + end.size());
  }

  void forget_paste() {
    joined_.clear();
    pasting_ = false;
  }

  Cursor cursor_;
  SourceScan scan_;
  Halves halves_;
  std::string word_;
  std::string joined_;        // what the ## chain up to here makes
  unsigned pastes_line_ = 0;  // of the first ##
  bool pasting_ = false;
  bool after_defined_ = false;
  bool line_start_ = true;
};

}  // namespace

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
