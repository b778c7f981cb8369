// What a cubin says about itself: the architecture it is for, and its kernels.
//
// Any bytes give a value or an error.
// Threads: pure functions and values.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/artifact.hpp"
#include "kiln/error.hpp"
#include "runtime/architecture.hpp"
#include "runtime/elf.hpp"

namespace kiln {

struct CubinKernel {
  std::string symbol{};
  unsigned registers = 0;                     ///< per thread
  unsigned static_shared_bytes = 0;           ///< per block, without what the system reserves
  unsigned stack_bytes = 0;                   ///< per thread
  std::vector<KernelParameter> parameters{};  ///< in order
  unsigned parameter_bytes = 0;               ///< of all, with the gaps between them
  LaunchBounds bounds{};
};

struct CubinInfo {
  Architecture architecture{};
  /// Whether the suffix is recorded. Where it is not, `architecture` has none.
  bool suffix_known = false;
  std::vector<CubinKernel> kernels{};  ///< in order of the symbol table
  /// Views of the cubin, valid as long as its bytes.
  std::vector<ElfSection> sections{};
  std::vector<ElfSymbol> symbols{};
};

/// Errors  invalid_argument when `cubin` is not whole CUDA machine code, or does not say of each
///         parameter of a kernel where it lies.
Result<CubinInfo> inspect_cubin(std::span<const std::byte> cubin);

/// Whether code of this kind is what a compile for `architecture` gives. A suffix counts where it
/// is recorded.
/// Errors  unsupported, naming both; else those of parse_architecture().
Status check_architecture(const CubinInfo& cubin, std::string_view architecture);

}  // namespace kiln
