#include "runtime/cubin.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

namespace kiln {
namespace {

// The layout is not documented; what is here was checked on the output of NVRTC 12.8, 12.9, 13.0
// and 13.5 for every architecture that they have.
constexpr std::uint8_t kOldAbi = 7;  // every architecture up to sm_90 before CUDA 13
constexpr std::uint8_t kNewAbi = 8;
constexpr std::uint32_t kOldAbiSpecific = 0x800;
constexpr std::uint32_t kNewAbiSpecific = 0x8;  // written by CUDA 12 only
constexpr std::uint8_t kSymbolIsKernel = 0x10;
constexpr std::uint32_t kNoteTool = 2000;
constexpr std::uint32_t kSectionUndefined = 0;
// Shared memory that the system keeps for itself is part of the section from sm_90 on.
constexpr int kFirstWithReserved = 90;
constexpr std::uint64_t kReservedShared = 1024;

// One attribute of an .nv.info section: a format byte, a code byte, then two bytes of value, which
// for the last format are the size of what follows.
constexpr std::uint8_t kFormatSized = 4;
constexpr std::uint8_t kMaxThreads = 0x05;
constexpr std::uint8_t kRequiredThreads = 0x10;
constexpr std::uint8_t kClusterBlocks = 0x3D;
constexpr std::uint8_t kMaxClusterBlocks = 0x3F;
constexpr std::uint8_t kBlocksAreClusters = 0x5B;
constexpr std::uint8_t kParameterBytes = 0x19;
constexpr std::uint8_t kParameterInfo = 0x17;
constexpr std::uint8_t kParameterInfo2 = 0x45;  // for kernels with more than 4 KiB of parameters
constexpr std::uint8_t kRegisterCount = 0x2F;
constexpr std::uint8_t kFrameSize = 0x11;
constexpr std::uint8_t kStackSize = 0x12;
// What the hardware's constant bank holds of parameters, so of those of one byte as many.
constexpr unsigned kMostParameterBytes = 32764;

Error not_a_cubin(std::string_view why) {
  return Error(ErrorCode::invalid_argument, "not a cubin: " + std::string(why));
}

struct Attribute {
  std::uint8_t code = 0;
  std::span<const std::byte> value{};  // the two bytes, or what follows them
};

std::vector<Attribute> attributes_of(const ElfSection* section) {
  std::vector<Attribute> attributes;
  if (section == nullptr) return attributes;
  const auto bytes = section->bytes;
  for (std::size_t at = 0; at + 4 <= bytes.size();) {
    const auto format = *read_le<std::uint8_t>(bytes, at);
    const auto code = *read_le<std::uint8_t>(bytes, at + 1);
    if (format != kFormatSized) {
      attributes.push_back({code, bytes.subspan(at + 2, 2)});
      at += 4;
      continue;
    }
    const std::size_t size = *read_le<std::uint16_t>(bytes, at + 2);
    at += 4;
    if (size > bytes.size() - at) break;
    attributes.push_back({code, bytes.subspan(at, size)});
    at += size;
  }
  return attributes;
}

// The suffix in "-arch sm_90a" of the assembler's command line, which the tool note records.
std::optional<Architecture> architecture_in_note(const ElfSection* section) {
  if (section == nullptr) return std::nullopt;
  for (const ElfNote& note : read_elf_notes(section->bytes)) {
    if (note.type != kNoteTool) continue;
    // Six numbers, the last of which says where in the texts after them the command line begins.
    const auto at = read_le<std::uint32_t>(note.description, 20);
    if (!at) continue;
    const auto command = text_at(note.description, std::uint64_t{24} + *at);
    constexpr std::string_view kOption = "-arch ";
    const auto option = command.find(kOption);
    if (option == std::string_view::npos) continue;
    auto name = command.substr(option + kOption.size());
    name = name.substr(0, name.find(' '));
    if (const auto parsed = parse_architecture(name)) return *parsed;
  }
  return std::nullopt;
}

void read_architecture(const ElfHeader& header, std::span<const ElfSection> sections,
                       CubinInfo& info) {
  const bool old = header.abi_version == kOldAbi;
  info.architecture.sm = static_cast<int>(old ? header.flags & 0xFF : header.flags >> 8 & 0xFF);
  if (old || (header.flags & kNewAbiSpecific) != 0) {
    const bool specific = (header.flags & (old ? kOldAbiSpecific : kNewAbiSpecific)) != 0;
    info.architecture.suffix = specific ? 'a' : '\0';
    info.suffix_known = true;
  } else if (const auto noted = architecture_in_note(find_section(sections, ".note.nv.tkinfo"));
             noted && noted->sm == info.architecture.sm) {
    info.architecture = *noted;
    info.suffix_known = true;
  }
}

void read_parameter(const Attribute& attribute, CubinKernel& kernel) {
  const auto ordinal = read_le<std::uint16_t>(attribute.value, 4);
  const auto offset = read_le<std::uint16_t>(attribute.value, 6);
  const auto packed = read_le<std::uint32_t>(attribute.value, 8);
  if (!ordinal || !offset || !packed || *ordinal >= kMostParameterBytes) return;
  if (kernel.parameters.size() <= *ordinal) kernel.parameters.resize(*ordinal + std::size_t{1});
  kernel.parameters[*ordinal] = {
      *offset, attribute.code == kParameterInfo ? *packed >> 18 : *packed & 0xFFFF};
}

std::array<unsigned, 3> three_numbers(std::span<const std::byte> value) {
  const auto x = read_le<std::uint32_t>(value, 0);
  const auto y = read_le<std::uint32_t>(value, 4);
  const auto z = read_le<std::uint32_t>(value, 8);
  return x && y && z ? std::array<unsigned, 3>{*x, *y, *z} : std::array<unsigned, 3>{};
}

// The attributes of one kernel.
void read_kernel_attributes(const ElfSection* section, CubinKernel& kernel) {
  for (const auto& attribute : attributes_of(section)) {
    const auto value = attribute.value;
    switch (attribute.code) {
      case kParameterInfo:
      case kParameterInfo2:
        read_parameter(attribute, kernel);
        break;
      case kParameterBytes:
        kernel.parameter_bytes = read_le<std::uint16_t>(value, 0).value_or(0);
        break;
      case kMaxThreads: {
        // Three numbers of which only the product is a limit.
        const auto [x, y, z] = three_numbers(value);
        const auto threads = std::uint64_t{x} * std::min(y, 1U << 16) * std::min(z, 1U << 16);
        kernel.bounds.max_threads =
            static_cast<unsigned>(std::min<std::uint64_t>(threads, UINT32_MAX));
        break;
      }
      case kRequiredThreads:
        kernel.bounds.block_threads = three_numbers(value);
        break;
      case kClusterBlocks:
        kernel.bounds.cluster_blocks = three_numbers(value);
        break;
      case kMaxClusterBlocks:
        kernel.bounds.max_cluster_blocks = read_le<std::uint32_t>(value, 0).value_or(0);
        break;
      case kBlocksAreClusters:
        kernel.bounds.grid_counts_clusters = true;
        break;
      default:
        break;
    }
  }
}

// A launch is checked against the table, so one with a gap must not pass for a whole one.
bool has_whole_parameter_table(const CubinKernel& kernel) {
  unsigned end = 0;
  for (const auto& [offset, bytes] : kernel.parameters) {
    if (bytes == 0) return false;
    end = std::max(end, offset + bytes);
  }
  return end == kernel.parameter_bytes && end <= kMostParameterBytes;
}

}  // namespace

Result<CubinInfo> inspect_cubin(std::span<const std::byte> cubin) {
  const auto header = read_elf_header(cubin);
  if (!header) return not_a_cubin(header.error().message());
  if (header->machine != kElfMachineCuda)
    return not_a_cubin("ELF machine " + std::to_string(header->machine));
  if (header->abi_version != kOldAbi && header->abi_version != kNewAbi)
    return not_a_cubin("unknown ABI version " + std::to_string(header->abi_version));
  auto read = read_elf_sections(cubin);
  if (!read) return not_a_cubin(read.error().message());

  CubinInfo info;
  info.sections = *std::move(read);
  info.symbols = read_elf_symbols(info.sections);
  const auto& sections = info.sections;
  const auto& symbols = info.symbols;
  read_architecture(*header, sections, info);
  const auto attributes = attributes_of(find_section(sections, ".nv.info"));
  for (std::size_t index = 0; index < symbols.size(); ++index) {
    const ElfSymbol& symbol = symbols[index];
    if (!symbol.is_function() || (symbol.other & kSymbolIsKernel) == 0 ||
        symbol.section == kSectionUndefined || symbol.name.empty())
      continue;
    CubinKernel kernel{.symbol = std::string(symbol.name)};
    for (const auto& [code, value] : attributes) {
      const auto number = read_le<std::uint32_t>(value, 4);
      if (!number || read_le<std::uint32_t>(value, 0) != index) continue;
      if (code == kRegisterCount) kernel.registers = *number;
      if (code == kFrameSize || code == kStackSize)
        kernel.stack_bytes = std::max(kernel.stack_bytes, *number);
    }
    read_kernel_attributes(find_section(sections, ".nv.info." + kernel.symbol), kernel);
    if (!has_whole_parameter_table(kernel))
      return not_a_cubin("its table of the parameters of " + kernel.symbol + " is incomplete");
    if (const auto* shared = find_section(sections, ".nv.shared." + kernel.symbol)) {
      const auto reserved = info.architecture.sm >= kFirstWithReserved ? kReservedShared : 0;
      kernel.static_shared_bytes =
          static_cast<unsigned>(shared->size - std::min(shared->size, reserved));
    }
    info.kernels.push_back(std::move(kernel));
  }
  return info;
}

Status check_architecture(const CubinInfo& cubin, std::string_view architecture) {
  KILN_TRY(const Architecture wanted, parse_architecture(architecture));
  const auto& is = cubin.architecture;
  if (is.sm == wanted.sm && (!cubin.suffix_known || is.suffix == wanted.suffix)) return {};
  return Error(ErrorCode::unsupported, "the cubin holds code for " + is.to_text() + ", not for " +
                                           std::string(architecture));
}

}  // namespace kiln
