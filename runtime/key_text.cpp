#include "kiln/key_text.hpp"

#include <charconv>
#include <cstddef>
#include <system_error>

namespace kiln {

std::vector<KeyTextField> key_text_fields(std::string_view key_text) {
  std::vector<KeyTextField> fields;
  while (!key_text.empty()) {
    const auto label_end = key_text.find(' ');
    if (label_end == std::string_view::npos) break;
    const auto rest = key_text.substr(label_end + 1);
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    // A blank before the value, a line end after it.
    if (error != std::errc{} || rest.size() - digits < 2 || length > rest.size() - digits - 2 ||
        rest[digits] != ' ' || rest[digits + 1 + length] != '\n')
      break;
    fields.push_back(
        {std::string(key_text.substr(0, label_end)), std::string(rest.substr(digits + 1, length))});
    key_text = rest.substr(digits + 1 + length + 1);
  }
  return fields;
}

std::vector<KeyTextFile> key_text_files(std::string_view key_text) {
  std::vector<KeyTextFile> files;
  for (const auto& field : key_text_fields(key_text)) {
    if (field.label != "source" && field.label != "header") continue;
    const auto blank = field.value.rfind(' ');
    if (blank == std::string::npos) continue;
    files.push_back(
        {field.value.substr(0, blank), field.value.substr(blank + 1), field.label == "header"});
  }
  return files;
}

}  // namespace kiln
