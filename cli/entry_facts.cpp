#include "cli/entry_facts.hpp"

#include <cstdlib>

namespace kiln::cli {

nlohmann::json facts_of(const cache::Entry& entry) {
  auto facts = nlohmann::json::parse(entry.facts(), nullptr, /*allow_exceptions=*/false);
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
