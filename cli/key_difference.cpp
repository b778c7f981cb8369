#include "cli/key_difference.hpp"

#include <nlohmann/json.hpp>

namespace kiln::cli {
namespace {

// What stands in one key: a value, the digest of a file's content, or an option that has no value.
std::string value_text(const KeyDifference& difference, const std::string& value) {
  if (difference.aspect == "source" || difference.aspect == "header") return "content " + value;
  return value.empty() ? "given" : value;
}

}  // namespace

std::vector<std::string> lines_of(const std::vector<KeyDifference>& differences,
                                  const std::string& first, const std::string& second) {
  std::vector<std::string> lines;
  for (const auto& difference : differences) {
    auto line = difference.aspect + (difference.name.empty() ? "" : ' ' + difference.name) + ": ";
    if (difference.first && difference.second)
      line += value_text(difference, *difference.first) + " in " + first + ", " +
              value_text(difference, *difference.second) + " in " + second;
    else if (difference.first)
      line += value_text(difference, *difference.first) + " in " + first + " alone";
    else if (difference.second)
      line += value_text(difference, *difference.second) + " in " + second + " alone";
    else
      line += "a key is of another form; kiln cache show prints it";
    lines.push_back(printable(line));
  }
  return lines;
}

Json json_of_differences(const std::vector<KeyDifference>& differences) {
  auto json = Json::array();
  const auto value = [](const std::optional<std::string>& text) {
    return text ? Json(*text) : Json();
  };
  for (const auto& difference : differences)
    json.push_back({{"aspect", difference.aspect},
                    {"name", difference.name},
                    {"first", value(difference.first)},
                    {"second", value(difference.second)}});
  return json;
}

}  // namespace kiln::cli
