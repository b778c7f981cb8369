// What a kernel's machine code does about the grids before and after it (programmatic dependent
// launch). Instructions are read, not text: no comment, string or dropped code can pass for one.
//
// Any bytes give a value or an error.
// Threads: pure functions and values.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "kiln/error.hpp"
#include "runtime/architecture.hpp"
#include "runtime/elf.hpp"

namespace kiln {

struct GridControl {
  bool waits = false;     ///< holds griddepcontrol.wait
  bool triggers = false;  ///< holds griddepcontrol.launch_dependents
  bool operator==(const GridControl&) const = default;
};

/// Reads the code section of the kernel `symbol` and those of the functions that it refers to, and
/// that these refer to. A function that is only reached through a pointer counts where the compiler
/// put it into the kernel's own section, which it does unless it compiles for debugging (-G).
/// Nothing below sm_90, which has neither instruction.
/// Errors  invalid_argument when the cubin, of which `architecture` is, has no such kernel.
Result<GridControl> read_grid_control(std::span<const ElfSection> sections,
                                      std::span<const ElfSymbol> symbols,
                                      const Architecture& architecture, std::string_view symbol);

}  // namespace kiln
