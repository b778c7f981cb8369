// A made-up cubin with just the machine code, symbols and relocations that a test asks for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/elf.hpp"
#include "tests/runtime/fake_tree.hpp"

namespace kiln::test {

/// One instruction: its low and its high eight bytes.
using Instruction = std::pair<std::uint64_t, std::uint64_t>;

struct FakeFunction {
  std::string name{};
  bool kernel = true;
  std::vector<Instruction> code{};
  std::vector<std::string> calls{};  ///< functions that a relocation of this one names
};

/// One code section for each function, and a relocation section for each that calls.
inline std::string cubin_bytes(int sm, const std::vector<FakeFunction>& functions) {
  constexpr std::size_t kFirstCode = 4;  // after the null section and the three tables
  struct Section {
    std::string name, bytes;
    std::uint32_t type = 1, link = 0, info = 0;
    std::uint64_t flags = 0;
  };
  std::vector<Section> sections(kFirstCode);
  std::string strings(1, '\0');
  std::string symbols(24, '\0');
  const auto index_of = [&](std::string_view name) {
    for (std::size_t i = 0; i < functions.size(); ++i)
      if (functions[i].name == name) return i;
    return functions.size();
  };
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const auto& function = functions[i];
    const auto at = symbols.size();
    put(symbols, at, strings.size(), 4);
    put(symbols, at + 4, 0x12, 1);
    put(symbols, at + 5, function.kernel ? 0x10 : 0, 1);
    put(symbols, at + 6, kFirstCode + i, 2);
    put(symbols, at + 16, function.code.size() * 16, 8);
    strings += function.name + '\0';
    std::string code;
    for (const auto& [low, high] : function.code) {
      put(code, code.size(), low, 8);
      put(code, code.size(), high, 8);
    }
    sections.push_back({".text." + function.name, code, 1, 3, 0, 6});
  }
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (functions[i].calls.empty()) continue;
    std::string relocations;
    for (const auto& callee : functions[i].calls) {
      const auto at = relocations.size();
      put(relocations, at + 8, 75, 4);
      put(relocations, at + 12, index_of(callee) + 1, 4);
      put(relocations, at + 16, 0, 8);
    }
    sections.push_back({".rela.text." + functions[i].name, relocations, 4, 3,
                        static_cast<std::uint32_t>(kFirstCode + i), 0x40});
  }
  sections[0].type = 0;
  sections[1] = {".shstrtab", {}, 3};
  sections[2] = {".strtab", strings, 3};
  sections[3] = {".symtab", symbols, 2, 2};

  std::string names(1, '\0');
  std::vector<std::size_t> name_offsets;
  for (const auto& section : sections) {
    name_offsets.push_back(section.name.empty() ? 0 : names.size());
    if (!section.name.empty()) names += section.name + '\0';
  }
  sections[1].bytes = names;

  std::string file(
      "\x7F"
      "ELF\x02\x01\x01",
      7);
  put(file, 8, 8, 1);
  put(file, 16, 2, 2);
  put(file, 18, kElfMachineCuda, 2);
  put(file, 48, 0x06000004U | static_cast<std::uint32_t>(sm) << 8, 4);
  put(file, 58, 64, 2);
  put(file, 60, sections.size(), 2);
  put(file, 62, 1, 2);
  std::vector<std::size_t> offsets;
  for (const auto& section : sections) {
    file.resize((file.size() + 15) / 16 * 16, '\0');
    offsets.push_back(file.size());
    file += section.bytes;
  }
  file.resize((file.size() + 7) / 8 * 8, '\0');
  put(file, 40, file.size(), 8);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto at = file.size();
    put(file, at, name_offsets[i], 4);
    put(file, at + 4, sections[i].type, 4);
    put(file, at + 8, sections[i].flags, 8);
    put(file, at + 24, offsets[i], 8);
    put(file, at + 32, sections[i].bytes.size(), 8);
    put(file, at + 40, sections[i].link, 4);
    put(file, at + 44, sections[i].info, 4);
    put(file, at + 48, 0, 8);
    put(file, at + 56, 0, 8);
  }
  return file;
}

}  // namespace kiln::test
