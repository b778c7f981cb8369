#include "cli/entry_facts.hpp"

#include <array>
#include <ctime>
#include <string>

#include <cstdlib>

namespace kiln::cli {

nlohmann::json facts_of(const cache::Entry& entry) {
  // Ours are flat. What is deeper is not kept: writing it out goes by recursion, which brackets
  // without end would run out of stack.
  constexpr int kDeepest = 4;
  const auto keep = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    return depth <= kDeepest;
  };
  auto facts = nlohmann::json::parse(entry.facts(), keep, /*allow_exceptions=*/false);
  return facts.is_discarded() ? nlohmann::json() : facts;
}

std::string text_fact(const nlohmann::json& facts, const char* name) {
  if (!facts.is_object()) return {};
  const auto found = facts.find(name);
  return found != facts.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string time_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&time, &parts) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return std::to_string(seconds);
  return text.data();
}

std::string age_text(std::int64_t seconds) {
  if (seconds < 0) return '-' + age_text(-seconds);  // of a clock that was ahead
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  if (seconds < 172'800) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / 86'400) + " d";
}

std::string padded(std::string text, int columns) {
  const auto wanted = static_cast<std::size_t>(std::abs(columns));
  if (text.size() < wanted) text.insert(columns < 0 ? 0 : text.size(), wanted - text.size(), ' ');
  return text;
}

}  // namespace kiln::cli
