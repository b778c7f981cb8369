#include "cli/entry_facts.hpp"

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

std::string padded(std::string text, int columns) {
  const auto wanted = static_cast<std::size_t>(std::abs(columns));
  if (text.size() < wanted) text.insert(columns < 0 ? 0 : text.size(), wanted - text.size(), ' ');
  return text;
}

}  // namespace kiln::cli
