#include "runtime/compile_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/message_text.hpp"
#include "runtime/option_table.hpp"

namespace kiln {
namespace {

Error refused(std::string_view option, std::string_view why) {
  return {ErrorCode::invalid_argument,
          "option " + quote(option) + " is refused: " + std::string(why)};
}

// Levenshtein distance, for suggestions only.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

Error unknown_option(std::string_view option) {
  constexpr std::size_t kFarthest = 4;
  constexpr std::size_t kLongestName = 64;
  const auto name = option.substr(0, std::min(option.find('='), kLongestName));
  std::string_view nearest;
  std::size_t best = std::min(kFarthest, name.size() / 3 + 1);
  for (const auto& rule : kOptionRules) {
    for (const auto known : {rule.name, rule.short_name}) {
      const auto far = known.empty() ? best : distance(name, known);
      if (far < best) {
        best = far;
        nearest = known;
      }
    }
  }
  return {ErrorCode::invalid_argument,
          "option " + quote(option) + " is unknown" +
              (nearest.empty() ? ": give options of NVRTC, not of nvcc; those of the assembler "
                                 "behind --ptxas-options="
                               : "; did you mean " + std::string(nearest) + "?")};
}

struct Match {
  const OptionRule* rule = nullptr;
  std::optional<std::string_view> value{};
};

std::string_view without_leading_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

// NVRTC reads a long name after two dashes and a short one after one, nothing else.
Match match(std::string_view argument) {
  const auto equals = argument.find('=');
  const auto name = argument.substr(0, equals);
  for (const auto& rule : kOptionRules) {
    if (name == rule.name || (!rule.short_name.empty() && name == rule.short_name)) {
      if (equals == std::string_view::npos) return {&rule, std::nullopt};
      return {&rule, argument.substr(equals + 1)};
    }
  }
  // Names of one letter take their value without "=" as well.
  for (const auto& rule : kOptionRules)
    if (rule.short_name.size() == 2 && rule.value != OptionValue::none &&
        argument.starts_with(rule.short_name))
      return {&rule, without_leading_blanks(argument.substr(2))};
  return {};
}

bool is_identifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

class Canonical {
 public:
  Result<CompileOptions> run(std::span<const std::string> options) {
    for (std::size_t i = 0; i < options.size(); ++i) {
      const auto argument = without_leading_blanks(options[i]);
      for (const char c : argument)
        if (static_cast<unsigned char>(c) < 0x20 && c != '\t')
          return refused(argument.substr(0, argument.find_first_of("\r\n")),
                         "it has a line break or another control character");
      auto [rule, value] = match(argument);
      if (rule == nullptr) return unknown_option(argument);
      if (!rule->refusal.empty()) return refused(argument, rule->refusal);
      if (rule->value == OptionValue::none && value) return refused(argument, "it takes no value");
      if (rule->value != OptionValue::none && !value) {
        if (++i == options.size()) return refused(argument, "its value is missing");
        value = options[i];
      }
      if (auto status = add(*rule, value.value_or(std::string_view{})); !status)
        return status.error();
    }
    return finish();
  }

 private:
  Status add(const OptionRule& rule, std::string_view value) {
    const auto name = std::string(rule.name);
    if (rule.value == OptionValue::none) return keep(rule, name);
    const auto text = name + '=' + std::string(value);
    for (const char c : value)
      if (c == '\n' || c == '\r' || c == '\0') return refused(name, "its value has a line break");
    switch (rule.value) {
      case OptionValue::boolean:
        if (value != "true" && value != "false") return refused(text, "it takes true or false");
        break;
      case OptionValue::number: {
        unsigned number = 0;
        const auto* end = value.data() + value.size();
        const auto read = std::from_chars(value.data(), end, number);
        if (read.ec != std::errc() || read.ptr != end) return refused(text, "it takes a number");
        return keep(rule, name + '=' + std::to_string(number));
      }
      case OptionValue::choice:
        return add_choice(rule, value, text);
      case OptionValue::macro:
        return add_macro(rule, value, text);
      case OptionValue::text:
        if (value.empty()) return refused(text, "its value is missing");
        if (rule.name == "--ptxas-options")
          if (auto status = check_assembler(value, text); !status) return status;
        break;
      case OptionValue::none:
        break;
    }
    return keep(rule, text);
  }

  Status add_choice(const OptionRule& rule, std::string_view value, const std::string& text) {
    std::string all;
    for (auto rest = rule.choices; !rest.empty();) {
      const auto bar = rest.find('|');
      const auto entry = rest.substr(0, bar);
      rest.remove_prefix(bar == std::string_view::npos ? rest.size() : bar + 1);
      const auto at = entry.find('@');
      const auto choice = entry.substr(0, at);
      all += (all.empty() ? "" : ", ") + std::string(choice);
      if (choice != value) continue;
      auto status = keep(rule, text);
      if (at != std::string_view::npos) {
        const auto dot = entry.find('.', at);
        auto& need = single_[rule.name].need;
        need = {text, number_at(entry, at + 1), number_at(entry, dot + 1)};
      }
      return status;
    }
    return refused(text, "it takes " + all);
  }

  static int number_at(std::string_view text, std::size_t at) {
    int number = 0;
    std::from_chars(text.data() + std::min(at, text.size()), text.data() + text.size(), number);
    return number;
  }

  Status add_macro(const OptionRule& rule, std::string_view value, const std::string& text) {
    const auto equals = value.find('=');
    const auto head = value.substr(0, equals);
    const auto name = head.substr(0, head.find('('));
    if (!is_identifier(name)) return refused(text, "it does not begin with a macro's name");
    if (name.starts_with("__CUDA_ARCH")) return refused(text, option_refusals::kTarget);
    const bool defines = rule.name == "--define-macro";
    if (!defines && name != value) return refused(text, "it takes a macro's name alone");
    auto argument = text;
    // A plain name is defined as 1.
    if (defines && equals == std::string_view::npos && name == value) argument += "=1";
    // As NVRTC reads it. The name by itself, such as X_HAS_INCLUDE, uses nothing.
    SourceScan scan;
    if (defines) {
      auto line = "#define " + std::string(head) + ' ';
      if (equals != std::string_view::npos) line += value.substr(equals + 1);
      scan = scan_source(line);
    }
    if (!scan.includes.empty() || !scan.unknowns.empty())
      return refused(text, "it asks for a file, which the include scan would not see");
    macros_.insert_or_assign(
        std::string(name),
        Macro{std::move(argument), scan.time_macro.has_value(), scan.lends_place, scan.parts});
    return {};
  }

  // Several options may stand in one value, with blanks or commas between them. What is no option
  // and no option's value is a file to assemble.
  Status check_assembler(std::string_view value, const std::string& text) {
    if (!std::exchange(assembler_waits_, false)) {
      if (!value.starts_with('-'))
        return refused(text,
                       "it names a file for the assembler, which the key does not hold; the "
                       "value of an option follows it after '='");
      assembler_waits_ = std::find(std::begin(kAssemblerApart), std::end(kAssemblerApart), value) !=
                         std::end(kAssemblerApart);
    }
    while (!value.empty()) {
      const auto end = std::min(value.find_first_of(" \t,"), value.size());
      const auto name = value.substr(0, std::min(value.find('='), end));
      for (const auto& rule : kAssemblerRefusals)
        if (name == rule.name) return refused(text, rule.refusal);
      value.remove_prefix(std::min(end + 1, value.size()));
    }
    return {};
  }

  Status keep(const OptionRule& rule, std::string text) {
    OptionNeed need;
    if (rule.since_major != 0) need = {text, rule.since_major, rule.since_minor};
    Kept kept{std::move(text), std::move(need)};
    if (rule.repeat == OptionRepeat::all)
      assembler_.push_back(std::move(kept));
    else if (rule.repeat == OptionRepeat::diagnostics)
      diagnostics_.push_back(std::move(kept));
    else
      single_.insert_or_assign(rule.name, std::move(kept));
    return {};
  }

  struct Kept {
    std::string text;
    OptionNeed need;
  };
  struct Macro {
    std::string text;
    bool reads_clock = false;
    bool lends_place = false;
    PasteParts parts{};
  };

  CompileOptions finish() {
    CompileOptions options;
    const auto emit = [&](Kept& kept) {
      if (kept.need.major != 0) options.needs.push_back(std::move(kept.need));
      options.arguments.push_back(std::move(kept.text));
    };
    for (auto& [name, kept] : single_) emit(kept);
    for (auto& kept : assembler_) emit(kept);
    for (auto& kept : diagnostics_) emit(kept);
    for (auto& [name, macro] : macros_) {
      options.parts = options.parts.with(macro.parts);
      options.lends_place = options.lends_place || macro.lends_place;
      if (macro.reads_clock && options.time_macro.empty()) options.time_macro = macro.text;
      options.arguments.push_back(std::move(macro.text));
    }
    return options;
  }

  std::map<std::string_view, Kept> single_;
  std::vector<Kept> assembler_;
  bool assembler_waits_ = false;  // for the value of its option before
  std::vector<Kept> diagnostics_;
  // Macros expand where they are used, so that only the last word on each name has a meaning.
  std::map<std::string, Macro, std::less<>> macros_;
};

}  // namespace

Result<CompileOptions> canonical_options(std::span<const std::string> options) {
  return Canonical().run(options);
}

Status check_version(const CompileOptions& options, int major, int minor) {
  for (const auto& need : options.needs)
    if (std::pair(major, minor) < std::pair(need.major, need.minor))
      return Error{ErrorCode::unsupported, "option " + quote(need.option) + " needs NVRTC " +
                                               std::to_string(need.major) + '.' +
                                               std::to_string(need.minor) + " or later, this is " +
                                               std::to_string(major) + '.' + std::to_string(minor)};
  return {};
}

}  // namespace kiln
