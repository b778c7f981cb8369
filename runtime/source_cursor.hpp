// The characters of a source text as the preprocessor's lexer gets them.
//
// Threads: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace kiln {

// Without '$' and what is not ASCII, which are tokens of their own to NVRTC: in $__TIME__ the macro
// is expanded, and $R"( begins a raw string.
inline bool is_identifier_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_identifier_part(char c) {
  return is_identifier_start(c) || is_digit(c);
}

// Not '\n'. A lone carriage return is white space to NVRTC, not a line end.
inline bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r' && c != '\n') || c == '\0';
}

// Reads characters with line splices removed.
class SourceCursor {
 public:
  explicit SourceCursor(std::string_view text) : text_(text) { settle(); }

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
    SourceCursor copy = *this;
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

}  // namespace kiln
