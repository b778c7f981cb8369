#include "runtime/architecture.hpp"

#include <algorithm>

namespace kiln {
namespace {

// Seen with NVRTC 12.8, 12.9, 13.0 and 13.5: each architecture from sm_90 on has an 'a' form and
// none before; each from sm_100 on has an 'f' form, and NVRTC takes it since 12.9.
constexpr int kFirstSpecific = 90;
constexpr int kFirstFamily = 100;

bool takes_families(int major, int minor) noexcept {
  return major > 12 || (major == 12 && minor >= 9);
}

// The architecture that somebody who wrote `text` may have meant, as a device asks for it: sm_90a
// for "90", "9.0", "SM_90" and "compute_90". Empty where there is no telling.
std::string meant_by(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z')
      letters += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      letters += c;
  }
  std::string_view rest = letters;
  for (const std::string_view prefix : {"sm", "compute"})
    if (rest.starts_with(prefix)) rest.remove_prefix(prefix.size());
  const auto digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  const auto suffix = rest.substr(digits.size());
  if (digits.size() < 2 || digits.size() > 3 || digits.front() == '0') return {};
  int sm = 0;
  for (const char digit : digits) sm = sm * 10 + (digit - '0');
  if (suffix == "f" && sm >= kFirstFamily) return Architecture{sm, 'f'}.to_text();
  return suffix.empty() || suffix == "a" || suffix == "f" ? architecture_of(sm / 10, sm % 10)
                                                          : std::string();
}

Error bad_architecture(ErrorCode code, std::string_view text, std::string_view why) {
  const auto meant = meant_by(text);
  return Error(code, "architecture \"" + std::string(text) + "\" " + std::string(why) + ": write " +
                         (meant.empty() ? "it as sm_86, sm_90a or sm_100f" : meant));
}

}  // namespace

std::string Architecture::to_text() const {
  auto text = "sm_" + std::to_string(sm);
  if (suffix != 0) text += suffix;
  return text;
}

Result<Architecture> parse_architecture(std::string_view text) {
  constexpr std::string_view kPrefix = "sm_";
  if (text.starts_with("compute_"))
    return bad_architecture(ErrorCode::unsupported, text,
                            "is a virtual one, which gives no machine code");
  constexpr auto kForm = "is not spelled as one";
  if (!text.starts_with(kPrefix)) return bad_architecture(ErrorCode::invalid_argument, text, kForm);
  auto digits = text.substr(kPrefix.size());
  Architecture parsed;
  if (digits.ends_with('a') || digits.ends_with('f')) {
    parsed.suffix = digits.back();
    digits.remove_suffix(1);
  }
  if (digits.size() < 2 || digits.size() > 3 || digits.front() == '0')
    return bad_architecture(ErrorCode::invalid_argument, text, kForm);
  for (const char digit : digits) {
    if (digit < '0' || digit > '9')
      return bad_architecture(ErrorCode::invalid_argument, text, kForm);
    parsed.sm = parsed.sm * 10 + (digit - '0');
  }
  if (parsed.suffix == 'a' && parsed.sm < kFirstSpecific)
    return bad_architecture(ErrorCode::unsupported, text,
                            "does not exist: the suffix a begins with sm_90a");
  if (parsed.suffix == 'f' && parsed.sm < kFirstFamily)
    return bad_architecture(ErrorCode::unsupported, text,
                            "does not exist: the suffix f begins with sm_100f");
  return parsed;
}

std::vector<std::string> with_suffixes(const std::vector<int>& numbers, int major, int minor) {
  auto sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> names;
  for (const int sm : sorted) {
    names.push_back(Architecture{sm, 0}.to_text());
    if (sm >= kFirstSpecific) names.push_back(Architecture{sm, 'a'}.to_text());
    if (sm >= kFirstFamily && takes_families(major, minor))
      names.push_back(Architecture{sm, 'f'}.to_text());
  }
  return names;
}

std::string architecture_of(int compute_major, int compute_minor) {
  const int sm = compute_major * 10 + compute_minor;
  return Architecture{sm, sm >= kFirstSpecific ? 'a' : '\0'}.to_text();
}

}  // namespace kiln
