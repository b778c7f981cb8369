// From the key fields of a manifest to a Key struct, by way of the struct's own list of fields.
//
// Threads: pure functions.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kiln/key.hpp"

namespace kiln::kernels {

/// `names` as one phrase: "a, b, c".
inline std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// `value` as it stands in a message, short.
inline std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 60;
  // Text that is not UTF-8 is shown with replacement characters: dump() would throw.
  auto text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest - 3) + "...";
  return text;
}

/// The enumerators of a key's enum and the names that manifests use for them. Specialise it with a
/// range `kAll` and a function `name_of`.
template <class Enum>
struct EnumNames;

/// Stores `value` in `member`. Gives what is allowed when it does not fit, and nothing when it
/// does.
template <KeyScalar Member>
std::string assign(Member& member, const nlohmann::json& value) {
  if constexpr (std::is_enum_v<Member>) {
    using Names = EnumNames<Member>;
    std::vector<std::string> names;
    for (const auto enumerator : Names::kAll) {
      const std::string name(Names::name_of(enumerator));
      if (value == name) {
        member = enumerator;
        return {};
      }
      names.push_back('"' + name + '"');
    }
    return "one of " + joined(names);
  } else if constexpr (std::same_as<Member, bool>) {
    if (!value.is_boolean()) return "true or false";
    member = value.get<bool>();
    return {};
  } else {
    const auto fits = [&](auto number) {
      if (!std::in_range<Member>(number)) return false;
      member = static_cast<Member>(number);
      return true;
    };
    // nlohmann keeps what is negative and what is not in two types.
    if (value.is_number_unsigned() ? fits(value.get<std::uint64_t>())
                                   : value.is_number_integer() && fits(value.get<std::int64_t>()))
      return {};
    return "a whole number from " + std::to_string(std::numeric_limits<Member>::min()) + " to " +
           std::to_string(std::numeric_limits<Member>::max());
  }
}

template <class Key>
std::vector<std::string> field_names() {
  std::vector<std::string> names;
  std::apply([&](const auto&... field) { (names.emplace_back(field.name), ...); }, Key::fields());
  return names;
}

/// Stores `value` in the member of `key` that is listed as `field`, which must be one of
/// field_names(). Gives what is allowed when it does not fit, and nothing when it does.
template <class Key>
std::string assign_field(Key& key, std::string_view field, const nlohmann::json& value) {
  std::string allowed;
  std::apply(
      [&](const auto&... listed) {
        ((listed.name == field ? void(allowed = assign(key.*(listed.member), value)) : void()),
         ...);
      },
      Key::fields());
  return allowed;
}

}  // namespace kiln::kernels
