#include "cli/distinctions.hpp"

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kiln/cache/digest.hpp"
#include "kiln/key_text.hpp"

namespace kiln::cli {
namespace {

// More say less; kiln cache diff has them all.
constexpr std::size_t kMostMarks = 8;
constexpr std::size_t kDigestDigits = 8;

// "rows u32 7" in name and value.
std::pair<std::string, std::string> constant_in(const std::string& field) {
  const auto name_end = field.find(' ');
  const auto type_end = field.find(' ', name_end == std::string::npos ? name_end : name_end + 1);
  if (type_end == std::string::npos) return {field, ""};
  return {field.substr(0, name_end), field.substr(type_end + 1)};
}

}  // namespace

std::vector<std::string> marks_of(std::string_view key_text) {
  std::vector<std::string> marks, files, others;
  std::string headers;
  for (const auto& [label, value] : key_text_fields(key_text)) {
    if (label == "field") {
      const auto [name, constant] = constant_in(value);
      marks.push_back(name + '=' + constant);
    } else if (label == "option") {
      others.push_back(value);
    } else if (label == "name-expression") {
      marks.push_back(value);
    } else if (label == "entry") {
      marks.push_back("entry " + value);
    } else if (label == "source") {
      // The header of constants is told by them.
      if (const auto blank = value.rfind(' ');
          blank != std::string::npos && !value.starts_with("jit/key.cuh "))
        files.push_back(value.substr(0, blank) + '@' + value.substr(blank + 1, kDigestDigits));
    } else if (label == "header") {
      headers += value + '\n';
    } else if (label == "toolchain") {
      others.push_back("nvrtc " + value);
    } else if (label != "kernel" && label != "architecture") {
      others.push_back(label + ' ' + value);
    }
  }
  if (!headers.empty())
    files.push_back("headers@" + cache::digest_of(headers).hex().substr(0, kDigestDigits));
  marks.insert(marks.end(), others.begin(), others.end());
  marks.insert(marks.end(), files.begin(), files.end());
  return marks;
}

std::vector<std::string> marks_of(const KernelSpec& spec) {
  std::vector<std::string> marks;
  for (const auto& field : spec.key) marks.push_back(field.name + '=' + field.value);
  marks.push_back(spec.name_expression.empty() ? "entry " + spec.entry : spec.name_expression);
  marks.insert(marks.end(), spec.options.begin(), spec.options.end());
  marks.push_back(spec.source);
  return marks;
}

std::vector<std::string> distinctions(const std::vector<MarkedRow>& rows) {
  struct Group {
    std::size_t rows = 0;
    std::map<std::string_view, std::size_t> holders;  // of a mark
  };
  std::map<std::string_view, Group> groups;
  for (const auto& row : rows) {
    auto& group = groups[row.group];
    ++group.rows;
    for (const auto& mark : std::set<std::string_view>(row.marks.begin(), row.marks.end()))
      ++group.holders[mark];
  }
  std::vector<std::string> texts;
  for (const auto& row : rows) {
    const auto& group = groups[row.group];
    std::string text;
    std::size_t count = 0;
    for (const auto& mark : row.marks) {
      if (group.holders.at(mark) == group.rows || ++count > kMostMarks) continue;
      text += (text.empty() ? "  " : " ") + printable(mark);
    }
    if (count > kMostMarks) text += " and " + std::to_string(count - kMostMarks) + " more";
    texts.push_back(std::move(text));
  }
  return texts;
}

Json constants_of(std::string_view key_text) {
  auto constants = Json::object();
  for (const auto& [label, value] : key_text_fields(key_text))
    if (label == "field") {
      auto [name, constant] = constant_in(value);
      constants[std::move(name)] = std::move(constant);
    }
  return constants;
}

}  // namespace kiln::cli
