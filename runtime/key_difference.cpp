#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "kiln/key_text.hpp"
#include "runtime/source_set.hpp"

namespace kiln {
namespace {

struct Part {
  std::string aspect{};
  std::string name{};
  std::string value{};
  std::size_t occurrence = 0;  // among the parts of the same aspect and name
};

using Place = std::tuple<std::string_view, std::string_view, std::size_t>;

Place place_of(const Part& part) {
  return {part.aspect, part.name, part.occurrence};
}

Part part_of(KeyTextField field) {
  // "rows u32 7", "folder/file.cuh 5f3a...", "--std=c++20": where the name ends.
  const auto split = [&](std::string aspect, std::size_t at) -> Part {
    if (at == std::string::npos) return {.aspect = std::move(aspect), .name = field.value};
    return {.aspect = std::move(aspect),
            .name = field.value.substr(0, at),
            .value = field.value.substr(at + 1)};
  };
  if (field.label == "field") return split("constant", field.value.find(' '));
  if (field.label == "source" || field.label == "header")
    return split(field.label, field.value.rfind(' '));
  if (field.label == "option") return split("option", field.value.rfind('='));
  if (field.label == "toolchain") field.label = "nvrtc";
  if (field.label == "same-file") field.label = "same file";
  if (field.label == "name-expression") field.label = "name expression";
  return {.aspect = std::move(field.label), .value = std::move(field.value)};
}

std::vector<Part> parts_of(std::string_view key_text) {
  std::vector<Part> parts;
  std::map<std::pair<std::string, std::string>, std::size_t> occurrences;
  for (auto& field : key_text_fields(key_text)) {
    auto part = part_of(std::move(field));
    part.occurrence = occurrences[{part.aspect, part.name}]++;
    parts.push_back(std::move(part));
  }
  return parts;
}

std::map<Place, const Part*> by_place(const std::vector<Part>& parts) {
  std::map<Place, const Part*> places;
  for (const auto& part : parts) places.emplace(place_of(part), &part);
  return places;
}

// The same parts in another order: what stands at the first place where the two differ.
KeyDifference order_difference(const std::vector<Part>& first, const std::vector<Part>& second) {
  for (std::size_t i = 0; i < first.size() && i < second.size(); ++i)
    if (place_of(first[i]) != place_of(second[i]))
      return {.aspect = "order",
              .first = first[i].aspect + ' ' + first[i].name,
              .second = second[i].aspect + ' ' + second[i].name};
  return {.aspect = "text"};
}

}  // namespace

std::vector<KeyDifference> key_differences(std::string_view first, std::string_view second) {
  std::vector<KeyDifference> differences;
  if (first == second) return differences;
  const auto firsts = parts_of(first);
  const auto seconds = parts_of(second);
  const auto in_first = by_place(firsts);
  const auto in_second = by_place(seconds);
  for (const auto& part : firsts) {
    const auto other = in_second.find(place_of(part));
    if (other == in_second.end())
      differences.push_back({part.aspect, part.name, part.value, std::nullopt});
    else if (other->second->value != part.value)
      differences.push_back({part.aspect, part.name, part.value, other->second->value});
  }
  for (const auto& part : seconds)
    if (!in_first.contains(place_of(part)))
      differences.push_back({part.aspect, part.name, std::nullopt, part.value});

  const bool constants_differ =
      std::any_of(differences.begin(), differences.end(),
                  [](const auto& difference) { return difference.aspect == "constant"; });
  if (constants_differ)
    std::erase_if(differences, [](const auto& difference) {
      return difference.aspect == "source" && difference.name == kKeyHeaderName;
    });
  if (differences.empty()) differences.push_back(order_difference(firsts, seconds));
  return differences;
}

}  // namespace kiln
