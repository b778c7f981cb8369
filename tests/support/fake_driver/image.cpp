#include "tests/support/fake_driver/image.hpp"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace fake_driver {
namespace {

constexpr unsigned kMachineCuda = 190;
constexpr unsigned char kOldAbi = 7;
constexpr unsigned char kEntryPoint = 0x10;    // in st_other
constexpr unsigned kSystemSharedBytes = 1024;  // in the shared section from sm_90 on

// Codes of the records in .nv.info sections.
enum Record : unsigned char {
  kMostThreads = 0x05,
  kFrameSize = 0x11,
  kStackSize = 0x12,
  kParameter = 0x17,
  kRegisters = 0x2F,
  kClusterBlocks = 0x3D,
  kClusterNeeded = 0x3E,
  kLargeParameter = 0x45,
};

template <class T>
T read(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class Reader {
 public:
  explicit Reader(const void* code) : base_(static_cast<const unsigned char*>(code)) {}

  CUresult read_into(Image& image) {
    // Byte by byte, since what is no cubin may be short.
    for (int i = 0; i < SELFMAG; ++i)
      if (base_[i] != static_cast<unsigned char>(ELFMAG[i])) return CUDA_ERROR_INVALID_IMAGE;
    if (base_[EI_CLASS] != ELFCLASS64) return CUDA_ERROR_INVALID_IMAGE;
    header_ = read<Elf64_Ehdr>(base_);
    if (header_.e_machine != kMachineCuda || header_.e_shentsize != sizeof(Elf64_Shdr))
      return CUDA_ERROR_INVALID_IMAGE;
    const bool old = header_.e_ident[EI_ABIVERSION] == kOldAbi;
    const auto sm = (old ? header_.e_flags : header_.e_flags >> 8) & 0xFF;
    image.major = static_cast<int>(sm / 10);
    image.minor = static_cast<int>(sm % 10);

    for (unsigned i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(read<Elf64_Shdr>(base_ + header_.e_shoff + i * sizeof(Elf64_Shdr)));
    if (header_.e_shstrndx >= sections_.size()) return CUDA_ERROR_INVALID_IMAGE;
    const auto* symbols = section(".symtab");
    if (symbols == nullptr || symbols->sh_link >= sections_.size()) return CUDA_ERROR_INVALID_IMAGE;
    const auto* names = base_ + sections_[symbols->sh_link].sh_offset;
    for (unsigned i = 0; i < symbols->sh_size / sizeof(Elf64_Sym); ++i) {
      const auto symbol = read<Elf64_Sym>(base_ + symbols->sh_offset + i * sizeof(Elf64_Sym));
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || (symbol.st_other & kEntryPoint) == 0 ||
          symbol.st_shndx == SHN_UNDEF)
        continue;
      Code kernel;
      kernel.name = reinterpret_cast<const char*>(names + symbol.st_name);
      describe(kernel, i, image.major);
      image.kernels.push_back(std::move(kernel));
    }
    return CUDA_SUCCESS;
  }

 private:
  const Elf64_Shdr* section(const std::string& name) const {
    const auto* names = base_ + sections_[header_.e_shstrndx].sh_offset;
    for (const auto& each : sections_)
      if (name == reinterpret_cast<const char*>(names + each.sh_name)) return &each;
    return nullptr;
  }

  // Calls `visit` with the code and the value of each record of a section.
  template <class Visit>
  void records(const std::string& name, Visit visit) const {
    const auto* found = section(name);
    if (found == nullptr) return;
    const auto* at = base_ + found->sh_offset;
    const auto* end = at + found->sh_size;
    while (end - at >= 4) {
      const std::size_t size = at[0] == 4 ? read<std::uint16_t>(at + 2) : 0;
      if (static_cast<std::size_t>(end - at) < 4 + size) return;
      visit(at[1], at + 4, size);
      at += 4 + size;
    }
  }

  void describe(Code& kernel, unsigned symbol, int major) const {
    records(".nv.info", [&](unsigned char code, const unsigned char* value, std::size_t size) {
      if (size < 8 || read<std::uint32_t>(value) != symbol) return;
      const auto number = read<std::uint32_t>(value + 4);
      if (code == kRegisters) kernel.registers = number;
      if (code == kFrameSize || code == kStackSize)
        kernel.stack_bytes = std::max(kernel.stack_bytes, number);
    });
    records(".nv.info." + kernel.name,
            [&](unsigned char code, const unsigned char* value, std::size_t size) {
              read_record(kernel, code, value, size);
            });
    if (const auto* shared = section(".nv.shared." + kernel.name)) {
      const auto bytes = static_cast<unsigned>(shared->sh_size);
      const auto system = major >= 9 ? kSystemSharedBytes : 0;
      kernel.static_shared_bytes = bytes - std::min(bytes, system);
    }
  }

  static void read_record(Code& kernel, unsigned char code, const unsigned char* value,
                          std::size_t size) {
    const auto word = [value](unsigned index) { return read<std::uint32_t>(value + 4 * index); };
    if (code == kClusterNeeded) kernel.needs_cluster = true;
    if (size < 12) return;
    switch (code) {
      case kMostThreads:
        kernel.most_threads = word(0) * word(1) * word(2);
        break;
      case kClusterBlocks:
        kernel.cluster = {word(0), word(1), word(2)};
        break;
      case kParameter:
      case kLargeParameter: {
        const std::size_t index = read<std::uint16_t>(value + 4);
        if (kernel.parameters.size() <= index) kernel.parameters.resize(index + 1);
        kernel.parameters[index] = {read<std::uint16_t>(value + 6),
                                    code == kParameter ? word(2) >> 18 : word(2) & 0xFFFF};
        break;
      }
      default:
        break;
    }
  }

  const unsigned char* base_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace

CUresult read_image(const void* code, Image& image) {
  return Reader(code).read_into(image);
}

}  // namespace fake_driver
