// Compile keys: what is compiled into a kernel. One list of fields gives the device constants
// (jit/key.cuh), the canonical text and what the CLI shows; a field left out fails the build.
//
//   struct Key {
//     int heads = 0;  // live heads
//     bool operator==(const Key&) const = default;
//     static constexpr auto fields() { return std::tuple{kiln::KeyField{"heads", &Key::heads}}; }
//   };
//   static_assert(kiln::lists_every_member<Key>);
//
// Threads: pure functions and values.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kiln {

/// One member of a key struct under the name that device code uses for it.
template <class Key, class Member>
struct KeyField {
  std::string_view name;
  Member Key::*member;
};
template <class Key, class Member>
KeyField(const char*, Member Key::*) -> KeyField<Key, Member>;

/// Keys hold integers, bools and enums only: everything else has more than one spelling.
template <class T>
concept KeyScalar = std::integral<T> || std::is_enum_v<T>;

/// A key field as values: what stands in the canonical text and in jit/key.cuh.
struct KeyValue {
  std::string name{};   ///< an identifier
  std::string type{};   ///< "bool", "i8" ... "i64", "u8" ... "u64"
  std::string value{};  ///< decimal, or "true" / "false"
  bool operator==(const KeyValue&) const = default;
};

namespace detail {

struct AnyValue {
  template <class T>
  operator T() const;  // NOLINT: converts to any member, only ever in unevaluated code
};

template <class T, class... Values>
consteval std::size_t member_count() {
  if constexpr (requires { T{Values{}..., AnyValue{}}; })
    return member_count<T, Values..., AnyValue>();
  else
    return sizeof...(Values);
}

template <KeyScalar T>
KeyValue key_value(std::string_view name, T value) {
  if constexpr (std::is_enum_v<T>) {
    return key_value(name, static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::same_as<T, bool>) {
    return {std::string(name), "bool", value ? "true" : "false"};
  } else {
    // Not `literal + std::string`, in which GCC 12 sees an overlap (its bug 105651): callers would
    // be warned of it.
    std::string type(1, std::is_signed_v<T> ? 'i' : 'u');
    type += std::to_string(sizeof(T) * 8);
    return {std::string(name), std::move(type), std::to_string(value)};
  }
}

template <class Left, class Right>
constexpr bool same_member(const Left& left, const Right& right) {
  if constexpr (std::same_as<Left, Right>)
    return left.member == right.member;
  else
    return false;
}

// How many pairs of fields name one member, each field with itself among them.
template <class Key>
constexpr std::size_t equal_pairs() {
  return std::apply(
      [](const auto&... left) {
        const auto row = [&](const auto& right) {
          return (std::size_t{0} + ... + std::size_t{same_member(left, right)});
        };
        return (std::size_t{0} + ... + row(left));
      },
      Key::fields());
}

}  // namespace detail

/// True when fields() names each member of `Key` once.
template <class Key>
inline constexpr bool lists_every_member =
    detail::member_count<Key>() ==
    std::tuple_size_v<decltype(Key::fields())>&& detail::equal_pairs<Key>() ==
    std::tuple_size_v<decltype(Key::fields())>;

/// The fields of `key` in declared order.
template <class Key>
std::vector<KeyValue> key_values(const Key& key) {
  static_assert(lists_every_member<Key>, "fields() must list every member of the key");
  std::vector<KeyValue> values;
  std::apply(
      [&](const auto&... field) {
        (values.push_back(detail::key_value(field.name, key.*(field.member))), ...);
      },
      Key::fields());
  return values;
}

}  // namespace kiln
