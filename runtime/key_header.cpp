#include "runtime/key_header.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

namespace kiln {
namespace {

constexpr std::string_view kKeywords[] = {"alignas",       "alignof",     "and",
                                          "and_eq",        "asm",         "auto",
                                          "bitand",        "bitor",       "bool",
                                          "break",         "case",        "catch",
                                          "char",          "char16_t",    "char32_t",
                                          "char8_t",       "class",       "co_await",
                                          "co_return",     "co_yield",    "compl",
                                          "concept",       "const",       "const_cast",
                                          "consteval",     "constexpr",   "constinit",
                                          "continue",      "decltype",    "default",
                                          "delete",        "do",          "double",
                                          "dynamic_cast",  "else",        "enum",
                                          "explicit",      "export",      "extern",
                                          "false",         "float",       "for",
                                          "friend",        "goto",        "if",
                                          "inline",        "int",         "long",
                                          "mutable",       "namespace",   "new",
                                          "noexcept",      "not",         "not_eq",
                                          "nullptr",       "operator",    "or",
                                          "or_eq",         "private",     "protected",
                                          "public",        "register",    "reinterpret_cast",
                                          "requires",      "return",      "short",
                                          "signed",        "sizeof",      "static",
                                          "static_assert", "static_cast", "struct",
                                          "switch",        "template",    "this",
                                          "thread_local",  "throw",       "true",
                                          "try",           "typedef",     "typeid",
                                          "typename",      "union",       "unsigned",
                                          "using",         "virtual",     "void",
                                          "volatile",      "wchar_t",     "while",
                                          "xor",           "xor_eq"};

struct KeyType {
  std::string_view name;
  std::string_view device_type;
  bool is_signed = false;
  unsigned bits = 0;
  std::string_view suffix{};
};

// NVRTC brings no <cstdint>.
constexpr KeyType kTypes[] = {
    {"bool", "bool"},
    {"i8", "signed char", true, 8},
    {"i16", "short", true, 16},
    {"i32", "int", true, 32},
    {"i64", "long long", true, 64, "LL"},
    {"u8", "unsigned char", false, 8},
    {"u16", "unsigned short", false, 16},
    {"u32", "unsigned int", false, 32, "U"},
    {"u64", "unsigned long long", false, 64, "ULL"},
};

Error bad_field(const KeyValue& value, const std::string& why) {
  return {ErrorCode::invalid_argument, "key field \"" + value.name + "\" " + why};
}

bool is_identifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

// The name of an implementation's own, which a macro of the compiler may replace.
bool is_reserved(std::string_view text) {
  return text.find("__") != std::string_view::npos ||
         (text.size() > 1 && text[0] == '_' && text[1] >= 'A' && text[1] <= 'Z');
}

template <class Integer>
std::optional<Integer> read_canonical(std::string_view text) {
  Integer number{};
  const auto* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || std::to_string(number) != text)
    return std::nullopt;
  return number;
}

std::optional<std::string> literal_of(const KeyType& type, std::string_view value) {
  if (type.bits == 0)
    return value == "true" || value == "false" ? std::optional(std::string(value)) : std::nullopt;
  const auto text = std::string(value) + std::string(type.suffix);
  if (!type.is_signed) {
    const auto number = read_canonical<std::uint64_t>(value);
    const auto most = std::numeric_limits<std::uint64_t>::max() >> (64 - type.bits);
    return number && *number <= most ? std::optional(text) : std::nullopt;
  }
  const auto number = read_canonical<std::int64_t>(value);
  const auto most = std::numeric_limits<std::int64_t>::max() >> (64 - type.bits);
  if (!number || *number > most || *number < -most - 1) return std::nullopt;
  // The literal of the smallest value does not fit without its sign.
  if (*number == std::numeric_limits<std::int64_t>::min())
    return std::to_string(*number + 1) + "LL - 1";
  return text;
}

}  // namespace

Result<std::string> make_key_header(std::span<const KeyValue> values) {
  std::string text = "#pragma once\nnamespace key {\n";
  std::set<std::string_view> seen;
  for (const auto& value : values) {
    if (!is_identifier(value.name))
      return bad_field(value, "is no identifier: use letters, digits and '_'");
    if (std::find(std::begin(kKeywords), std::end(kKeywords), value.name) != std::end(kKeywords))
      return bad_field(value, "is a keyword of C++: choose another name");
    if (is_reserved(value.name))
      return bad_field(value, "is a name reserved for the compiler: choose another name");
    if (!seen.insert(value.name).second) return bad_field(value, "stands twice in the key");
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](const KeyType& known) { return known.name == value.type; });
    if (type == std::end(kTypes))
      return bad_field(
          value, "has the unknown type \"" + value.type + "\": use bool, i8 to i64 or u8 to u64");
    const auto literal = literal_of(*type, value.value);
    if (!literal)
      return bad_field(value, "of type " + value.type + " cannot hold \"" + value.value +
                                  "\": write it in plain decimal, or as true or false, within the "
                                  "type's range");
    text += "inline constexpr " + std::string(type->device_type) + ' ' + value.name + " = " +
            *literal + ";\n";
  }
  return text + "}  // namespace key\n";
}

}  // namespace kiln
