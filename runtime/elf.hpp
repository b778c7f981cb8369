// A bounds-checked reader of little-endian ELF64: enough to tell which shared library a file is,
// and what a cubin holds.
//
// Any bytes give a value or an error. Views point into the bytes that were handed in.
// Threads: pure functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"

namespace kiln {

inline constexpr std::uint16_t kElfTypeShared = 3;
inline constexpr std::uint16_t kElfMachineCuda = 190;
#if defined(__x86_64__)
inline constexpr std::uint16_t kElfMachineHere = 62;
#elif defined(__aarch64__)
inline constexpr std::uint16_t kElfMachineHere = 183;
#else
#error "Kiln knows the ELF machine of x86_64 and aarch64 only"
#endif

/// A little-endian unsigned number at `offset`; empty when it does not lie within `bytes`.
template <class T>
std::optional<T> read_le(std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;)
    value =
        value << 8 | std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(offset) + i]);
  return static_cast<T>(value);
}

/// The text from `offset` up to its zero byte; empty when there is no such text.
std::string_view text_at(std::span<const std::byte> bytes, std::uint64_t offset) noexcept;

struct ElfHeader {
  std::uint8_t abi_version = 0;
  std::uint16_t type = 0;
  std::uint16_t machine = 0;
  std::uint32_t flags = 0;
  std::uint64_t segments_offset = 0;
  std::uint16_t segment_count = 0;
  std::uint64_t sections_offset = 0;
  std::uint16_t section_count = 0;
  std::uint16_t names_section = 0;
};
/// Errors  invalid_argument when `bytes` does not begin with an ELF64 little-endian header.
Result<ElfHeader> read_elf_header(std::span<const std::byte> bytes);

struct ElfSection {
  std::string_view name{};
  std::uint32_t type = 0;
  std::uint64_t flags = 0;
  std::uint64_t size = 0;
  std::uint32_t link = 0;
  std::uint32_t info = 0;
  std::span<const std::byte> bytes{};  ///< empty for a section that takes no room in the file
};

struct ElfSymbol {
  std::string_view name{};
  std::uint8_t info = 0;
  std::uint8_t other = 0;
  std::uint16_t section = 0;
  bool is_function() const noexcept { return (info & 0xF) == 2; }
};

struct ElfNote {
  std::string_view owner{};
  std::uint32_t type = 0;
  std::span<const std::byte> description{};
};

/// The sections of an ELF file that is wholly in memory.
/// Errors  invalid_argument when the table, a name or the bytes of a section lie outside.
Result<std::vector<ElfSection>> read_elf_sections(std::span<const std::byte> file);
/// The first section called `name`; null when there is none.
const ElfSection* find_section(std::span<const ElfSection> sections,
                               std::string_view name) noexcept;
/// The symbols of .symtab, by index, the null symbol included; empty without a symbol table.
std::vector<ElfSymbol> read_elf_symbols(std::span<const ElfSection> sections);
/// The notes up to the first one that does not fit.
std::vector<ElfNote> read_elf_notes(std::span<const std::byte> bytes);

/// What identifies a shared library.
struct SharedObject {
  std::uint16_t machine = 0;
  std::string soname{};    ///< empty when it has none
  std::string build_id{};  ///< in hex; empty when it has none
};

/// Fills `into` with what lies at `offset`; false when that is not all there.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> into)>;

/// Reads a shared library's facts from a few small parts of it: its headers, notes and dynamic
/// section.
/// Errors  invalid_argument when it is not an ELF64 shared library.
Result<SharedObject> read_shared_object(const ReadAt& read);

/// The same from a file. Never blocks on a pipe or a device.
/// Errors  io_failed when it cannot be read.
Result<SharedObject> read_shared_object(const std::filesystem::path& path);

}  // namespace kiln
