// What kiln_embed_sources makes of files below another folder, and of generated ones.
#include <cstdio>
#include <string>

#include "embedded_sources.hpp"
#include "made_sources.hpp"

namespace {

bool holds(std::span<const kiln::SourceText> table, std::string_view name, std::string_view part) {
  if (table.size() == 1 && table[0].name == name &&
      table[0].text.find(part) != std::string_view::npos)
    return true;
  return std::printf("no table of %s alone\n", std::string(name).c_str()), false;
}

}  // namespace

int main() {
  const bool right = holds(embedding::embedded_sources(), "twice.cu", "__global__") &&
                     holds(embedding::made_sources(), "engine/made/twice.cu", "#pragma once");
  return right ? 0 : 1;
}
