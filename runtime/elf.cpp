#include "runtime/elf.hpp"

#include <algorithm>
#include <array>

#include "runtime/read_file.hpp"

namespace kiln {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kSegmentBytes = 56;
constexpr std::size_t kSectionBytes = 64;
constexpr std::size_t kSymbolBytes = 24;

constexpr std::uint32_t kSegmentLoad = 1;
constexpr std::uint32_t kSegmentDynamic = 2;
constexpr std::uint32_t kSegmentNote = 4;
constexpr std::uint32_t kSectionNote = 7;
constexpr std::uint32_t kSectionNoBits = 8;
constexpr std::uint32_t kNoteBuildId = 3;

// Far above what a library has, far below what would cost time: a made-up size is not obeyed.
constexpr std::uint64_t kLargestPart = 1U << 16;

Error not_elf(std::string what) {
  return Error(ErrorCode::invalid_argument, std::move(what));
}

bool within(std::uint64_t offset, std::uint64_t size, std::uint64_t limit) noexcept {
  return offset <= limit && size <= limit - offset;
}

std::string hex_of(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<std::size_t>(b >> 4)];
    text += kDigits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return text;
}

struct Segment {
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
  std::uint64_t address = 0;
  std::uint64_t file_size = 0;
};

std::vector<Segment> segments_of(std::span<const std::byte> table) {
  std::vector<Segment> segments;
  for (std::uint64_t at = 0; within(at, kSegmentBytes, table.size()); at += kSegmentBytes)
    segments.push_back({*read_le<std::uint32_t>(table, at), *read_le<std::uint64_t>(table, at + 8),
                        *read_le<std::uint64_t>(table, at + 16),
                        *read_le<std::uint64_t>(table, at + 32)});
  return segments;
}

std::vector<std::byte> part(const ReadAt& read, std::uint64_t offset, std::uint64_t size) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(size, kLargestPart)));
  if (!read(offset, bytes)) bytes.clear();
  return bytes;
}

std::string soname_of(const ReadAt& read, std::span<const Segment> segments,
                      std::span<const std::byte> dynamic) {
  std::optional<std::uint64_t> name, strings;
  for (std::uint64_t at = 0; within(at, 16, dynamic.size()); at += 16) {
    const auto tag = *read_le<std::uint64_t>(dynamic, at);
    const auto value = *read_le<std::uint64_t>(dynamic, at + 8);
    if (tag == 0) break;
    if (tag == 5) strings = value;
    if (tag == 14) name = value;
  }
  if (!name || !strings) return {};
  for (const Segment& segment : segments) {
    if (segment.type != kSegmentLoad || *strings < segment.address) continue;
    const std::uint64_t in_segment = *strings - segment.address;
    if (!within(in_segment, *name, segment.file_size)) continue;
    const std::uint64_t left = segment.file_size - in_segment - *name;
    if (!within(segment.offset, in_segment + *name, UINT64_MAX)) continue;
    const auto text =
        part(read, segment.offset + in_segment + *name, std::min<std::uint64_t>(left, 256));
    return std::string(text_at(text, 0));
  }
  return {};
}

}  // namespace

std::string_view text_at(std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
  if (offset >= bytes.size()) return {};
  const auto rest = bytes.subspan(static_cast<std::size_t>(offset));
  const auto end = std::find(rest.begin(), rest.end(), std::byte{0});
  if (end == rest.end()) return {};
  return {reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(end - rest.begin())};
}

Result<ElfHeader> read_elf_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return not_elf("too short for an ELF file");
  if (*read_le<std::uint32_t>(bytes, 0) != 0x464C457F) return not_elf("not an ELF file");
  // 64 bits, little-endian, version 1.
  if (*read_le<std::uint16_t>(bytes, 4) != 0x0102 || *read_le<std::uint8_t>(bytes, 6) != 1)
    return not_elf("not a 64-bit little-endian ELF file");
  ElfHeader header;
  header.abi_version = *read_le<std::uint8_t>(bytes, 8);
  header.type = *read_le<std::uint16_t>(bytes, 16);
  header.machine = *read_le<std::uint16_t>(bytes, 18);
  header.segments_offset = *read_le<std::uint64_t>(bytes, 32);
  header.sections_offset = *read_le<std::uint64_t>(bytes, 40);
  header.flags = *read_le<std::uint32_t>(bytes, 48);
  header.segment_count = *read_le<std::uint16_t>(bytes, 56);
  header.section_count = *read_le<std::uint16_t>(bytes, 60);
  header.names_section = *read_le<std::uint16_t>(bytes, 62);
  if (header.segment_count != 0 && *read_le<std::uint16_t>(bytes, 54) != kSegmentBytes)
    return not_elf("an ELF file with segment headers of another size");
  if (header.section_count != 0 && *read_le<std::uint16_t>(bytes, 58) != kSectionBytes)
    return not_elf("an ELF file with section headers of another size");
  return header;
}

Result<std::vector<ElfSection>> read_elf_sections(std::span<const std::byte> file) {
  KILN_TRY(const ElfHeader header, read_elf_header(file));
  const std::uint64_t table = header.sections_offset;
  if (!within(table, std::uint64_t{header.section_count} * kSectionBytes, file.size()))
    return not_elf("the section table lies outside the file");
  // Where the segments come last in a file, this is what shows that it was cut short.
  if (!within(header.segments_offset, std::uint64_t{header.segment_count} * kSegmentBytes,
              file.size()))
    return not_elf("the segment table lies outside the file");
  std::vector<ElfSection> sections;
  std::vector<std::uint32_t> names;
  for (std::uint64_t i = 0; i < header.section_count; ++i) {
    const std::uint64_t at = table + i * kSectionBytes;
    ElfSection section;
    names.push_back(*read_le<std::uint32_t>(file, at));
    section.type = *read_le<std::uint32_t>(file, at + 4);
    section.flags = *read_le<std::uint64_t>(file, at + 8);
    const auto offset = *read_le<std::uint64_t>(file, at + 24);
    section.size = *read_le<std::uint64_t>(file, at + 32);
    section.link = *read_le<std::uint32_t>(file, at + 40);
    section.info = *read_le<std::uint32_t>(file, at + 44);
    if (section.type != kSectionNoBits && section.type != 0) {
      if (!within(offset, section.size, file.size()))
        return not_elf("section " + std::to_string(i) + " lies outside the file");
      section.bytes =
          file.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(section.size));
    }
    sections.push_back(section);
  }
  if (sections.empty()) return sections;
  if (header.names_section >= sections.size()) return not_elf("no table of section names");
  const auto table_of_names = sections[header.names_section].bytes;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (names[i] >= table_of_names.size() && names[i] != 0)
      return not_elf("the name of section " + std::to_string(i) + " lies outside the file");
    sections[i].name = text_at(table_of_names, names[i]);
  }
  return sections;
}

const ElfSection* find_section(std::span<const ElfSection> sections,
                               std::string_view name) noexcept {
  const auto found = std::find_if(sections.begin(), sections.end(),
                                  [&](const ElfSection& s) { return s.name == name; });
  return found == sections.end() ? nullptr : &*found;
}

std::vector<ElfSymbol> read_elf_symbols(std::span<const ElfSection> sections) {
  const ElfSection* table = find_section(sections, ".symtab");
  if (table == nullptr || table->link >= sections.size()) return {};
  const auto strings = sections[table->link].bytes;
  std::vector<ElfSymbol> symbols;
  for (std::uint64_t at = 0; within(at, kSymbolBytes, table->bytes.size()); at += kSymbolBytes) {
    ElfSymbol symbol;
    symbol.name = text_at(strings, *read_le<std::uint32_t>(table->bytes, at));
    symbol.info = *read_le<std::uint8_t>(table->bytes, at + 4);
    symbol.other = *read_le<std::uint8_t>(table->bytes, at + 5);
    symbol.section = *read_le<std::uint16_t>(table->bytes, at + 6);
    symbols.push_back(symbol);
  }
  return symbols;
}

std::vector<ElfNote> read_elf_notes(std::span<const std::byte> bytes) {
  std::vector<ElfNote> notes;
  const auto padded = [](std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; };
  for (std::uint64_t at = 0; within(at, 12, bytes.size());) {
    const std::uint64_t owner_bytes = *read_le<std::uint32_t>(bytes, at);
    const std::uint64_t description_bytes = *read_le<std::uint32_t>(bytes, at + 4);
    const std::uint64_t owner_at = at + 12;
    const std::uint64_t description_at = owner_at + padded(owner_bytes);
    if (!within(description_at, description_bytes, bytes.size())) break;
    const auto text =
        bytes.subspan(static_cast<std::size_t>(owner_at), static_cast<std::size_t>(owner_bytes));
    notes.push_back({text_at(text, 0), *read_le<std::uint32_t>(bytes, at + 8),
                     bytes.subspan(static_cast<std::size_t>(description_at),
                                   static_cast<std::size_t>(description_bytes))});
    at = description_at + padded(description_bytes);
  }
  return notes;
}

namespace {

void take_build_id(std::span<const std::byte> notes, SharedObject& object) {
  for (const ElfNote& note : read_elf_notes(notes))
    if (note.owner == "GNU" && note.type == kNoteBuildId && !note.description.empty())
      object.build_id = hex_of(note.description);
}

// The build-id through the section table: patchelf, which wheels go through, moves the note and
// leaves its segment pointing at the old place.
void find_build_id_by_section(const ReadAt& read, const ElfHeader& header, SharedObject& object) {
  const auto table =
      part(read, header.sections_offset, std::uint64_t{header.section_count} * kSectionBytes);
  for (std::uint64_t at = 0; within(at, kSectionBytes, table.size()); at += kSectionBytes) {
    if (*read_le<std::uint32_t>(table, at + 4) != kSectionNote) continue;
    const auto notes = part(read, *read_le<std::uint64_t>(table, at + 24),
                            *read_le<std::uint64_t>(table, at + 32));
    take_build_id(notes, object);
  }
}

}  // namespace

Result<SharedObject> read_shared_object(const ReadAt& read) {
  std::array<std::byte, kHeaderBytes> first{};
  if (!read(0, first)) return not_elf("too short for an ELF file");
  KILN_TRY(const ElfHeader header, read_elf_header(first));
  if (header.type != kElfTypeShared) return not_elf("an ELF file, but not a shared library");
  const auto table =
      part(read, header.segments_offset, std::uint64_t{header.segment_count} * kSegmentBytes);
  const auto segments = segments_of(table);
  if (segments.empty()) return not_elf("an ELF file cut short: its segment table is missing");

  SharedObject object{.machine = header.machine};
  for (const Segment& segment : segments) {
    if (segment.type != kSegmentDynamic && segment.type != kSegmentNote) continue;
    const auto bytes = part(read, segment.offset, segment.file_size);
    // The loader needs these as well: a file without them was cut short on its way here.
    if (bytes.empty() && segment.file_size != 0)
      return not_elf("an ELF file cut short: one of its segments is missing");
    if (segment.type == kSegmentDynamic)
      object.soname = soname_of(read, segments, bytes);
    else
      take_build_id(bytes, object);
  }
  if (object.build_id.empty()) find_build_id_by_section(read, header, object);
  return object;
}

Result<SharedObject> read_shared_object(const std::filesystem::path& path) {
  KILN_TRY(const OpenFile file, OpenFile::open(path));
  return read_shared_object(
      [&](std::uint64_t offset, std::span<std::byte> into) { return file.read_at(offset, into); });
}

}  // namespace kiln
