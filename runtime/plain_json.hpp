// A reader for JSON of the plain kind that programs write: no blanks, printable ASCII without
// escapes, whole numbers. What is anything else is left to a full parser.
//
// Threads: a function of its arguments.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

/// Makes the calls to `handler` that nlohmann::json::sax_parse() would make. False when the handler
/// has had enough or the text is not of the plain kind; then what the handler has been told is to
/// be forgotten.
template <class Handler>
class PlainJson {
 public:
  PlainJson(std::string_view text, Handler& handler)
      : at_(text.data()), end_(text.data() + text.size()), handler_(handler) {}

  bool read() { return value(0) && at_ == end_; }

 private:
  static constexpr int kDeepest = 8;
  static constexpr std::ptrdiff_t kMostDigits = 18;  // which 64 bits hold
  static constexpr auto kUnknownSize = static_cast<std::size_t>(-1);
  // The quote, and what no plain text holds.
  static constexpr auto kEndsText = [] {
    std::array<bool, 256> ends{};
    for (std::size_t c = 0; c < ends.size(); ++c)
      ends[c] = c < ' ' || c > '~' || c == '"' || c == '\\';
    return ends;
  }();

  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool word(std::string_view text) {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(text))
      return false;
    at_ += text.size();
    return true;
  }

  bool value(int depth) {
    if (at_ == end_ || depth > kDeepest) return false;
    switch (*at_) {
      case '"':
        return string() && handler_.string(text_);
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case 't':
        return word("true") && handler_.boolean(true);
      case 'f':
        return word("false") && handler_.boolean(false);
      default:
        return number();
    }
  }

  bool string() {
    const char* const begin = ++at_;
    while (at_ != end_ && !kEndsText[static_cast<unsigned char>(*at_)]) ++at_;
    text_.assign(begin, at_);
    return take('"');
  }

  bool number() {
    const char* const begin = at_;
    std::uint64_t number = 0;
    const auto read = std::from_chars(at_, end_, number);
    if (read.ec != std::errc{} || read.ptr - begin > kMostDigits) return false;
    at_ = read.ptr;
    const bool padded = *begin == '0' && at_ - begin > 1;
    // What goes on is a fraction or has an exponent.
    const bool ends = at_ != end_ && (*at_ == ',' || *at_ == ']' || *at_ == '}');
    return !padded && ends && handler_.number_unsigned(number);
  }

  bool object(int depth) {
    ++at_;
    if (!handler_.start_object(kUnknownSize)) return false;
    if (take('}')) return handler_.end_object();
    do {
      if (at_ == end_ || *at_ != '"' || !string() || !take(':') || !handler_.key(text_) ||
          !value(depth + 1))
        return false;
    } while (take(','));
    return take('}') && handler_.end_object();
  }

  bool array(int depth) {
    ++at_;
    if (!handler_.start_array(kUnknownSize)) return false;
    if (take(']')) return handler_.end_array();
    do {
      if (!value(depth + 1)) return false;
    } while (take(','));
    return take(']') && handler_.end_array();
  }

  const char* at_;
  const char* const end_;
  Handler& handler_;
  std::string text_;  // of a string, until the handler has it
};

}  // namespace kiln
