#include "runtime/grid_control.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/elf.hpp"

namespace kiln {
namespace {

// An instruction is 16 bytes, at a multiple of 16 from the start of its section, and a section
// holds nothing else. Bits 0 to 11 and bit 91 (here 0) are the operation; 12 to 15 are its guard,
// where 15 means "never"; neither operation has an operand, and the disassembler ignores the bits
// of one. It is the same for sm_90, 100, 103, 110, 120 and 121 as NVRTC 12.8, 13.0 and 13.5 write
// them, checked against nvdisasm 13.5. A later architecture is taken to keep it; the test
// GridControl.OfTwoKernelsEachHasItsOwn fails for one that does not.
constexpr std::size_t kInstructionBytes = 16;
constexpr std::size_t kHighBit = 91;
constexpr unsigned kNever = 15;
constexpr unsigned kWait = 0x82E;     // ACQBULK
constexpr unsigned kTrigger = 0x82D;  // PREEXIT
constexpr int kFirstWithGridControl = 90;

constexpr std::uint32_t kSectionBits = 1;
constexpr std::uint32_t kSectionRelocations = 4;
constexpr std::uint64_t kSectionIsCode = 4;
constexpr std::uint64_t kRelocationBytes = 24;
constexpr std::uint8_t kSymbolIsKernel = 0x10;

GridControl scan(std::span<const std::byte> code) noexcept {
  GridControl found;
  for (std::size_t at = 0; code.size() - at >= kInstructionBytes; at += kInstructionBytes) {
    const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(code[at + i]); };
    const auto operation = byte(0) | (byte(1) & 0xF) << 8;
    if (operation != kWait && operation != kTrigger) continue;
    if ((byte(kHighBit / 8) >> kHighBit % 8 & 1) != 0 || byte(1) >> 4 == kNever) continue;
    (operation == kWait ? found.waits : found.triggers) = true;
  }
  return found;
}

bool is_code(std::span<const ElfSection> sections, std::size_t index) noexcept {
  return index < sections.size() && sections[index].type == kSectionBits &&
         (sections[index].flags & kSectionIsCode) != 0;
}

// What the code of one section refers to, by relocation: the called functions that the compiler did
// not copy into the caller's own section.
class References {
 public:
  References(std::span<const ElfSection> sections, std::span<const ElfSymbol> symbols)
      : symbols_(symbols) {
    for (const ElfSection& section : sections)
      if (section.type == kSectionRelocations && is_code(sections, section.info))
        by_section_.emplace_back(section.info, section.bytes);
    std::sort(by_section_.begin(), by_section_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  template <class Visit>
  void visit(std::size_t section, Visit visit) const {
    const auto first = std::lower_bound(by_section_.begin(), by_section_.end(), section,
                                        [](const auto& a, std::size_t b) { return a.first < b; });
    for (auto it = first; it != by_section_.end() && it->first == section; ++it)
      for (std::uint64_t at = 0; at + kRelocationBytes <= it->second.size();
           at += kRelocationBytes) {
        const auto symbol = *read_le<std::uint32_t>(it->second, at + 12);
        // Another kernel is launched, never called.
        if (symbol < symbols_.size() && (symbols_[symbol].other & kSymbolIsKernel) == 0)
          visit(std::size_t{symbols_[symbol].section});
      }
  }

 private:
  std::span<const ElfSymbol> symbols_;
  std::vector<std::pair<std::size_t, std::span<const std::byte>>> by_section_;
};

}  // namespace

Result<GridControl> read_grid_control(std::span<const ElfSection> sections,
                                      std::span<const ElfSymbol> symbols,
                                      const Architecture& architecture, std::string_view symbol) {
  const auto kernel = std::find_if(symbols.begin(), symbols.end(), [&](const ElfSymbol& s) {
    return s.is_function() && (s.other & kSymbolIsKernel) != 0 && s.name == symbol;
  });
  if (kernel == symbols.end() || !is_code(sections, kernel->section))
    return Error(ErrorCode::invalid_argument,
                 "the cubin holds no code of a kernel " + std::string(symbol));
  GridControl found;
  if (architecture.sm < kFirstWithGridControl) return found;

  const References references(sections, symbols);
  std::vector<bool> seen(sections.size());
  std::vector<std::size_t> open = {kernel->section};
  seen[kernel->section] = true;
  while (!open.empty()) {
    const auto section = open.back();
    open.pop_back();
    const auto here = scan(sections[section].bytes);
    found.waits |= here.waits;
    found.triggers |= here.triggers;
    references.visit(section, [&](std::size_t target_section) {
      if (!is_code(sections, target_section) || seen[target_section]) return;
      seen[target_section] = true;
      open.push_back(target_section);
    });
  }
  return found;
}

}  // namespace kiln
