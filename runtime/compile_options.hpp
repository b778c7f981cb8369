// NVRTC options as one canonical list: equal meanings give equal text, and what would change the
// architecture, read or write files, or belongs to Kiln is refused.
//
// Threads: pure functions and values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "runtime/source_scan.hpp"

namespace kiln {

/// An option that the oldest supported NVRTC does not know.
struct OptionNeed {
  std::string option{};  ///< as it is passed
  int major = 0;         ///< the first NVRTC that has it
  int minor = 0;
  bool operator==(const OptionNeed&) const = default;
};

struct CompileOptions {
  /// One string for each argument of NVRTC, in long form with "=": flags and single values in order
  /// of text, then assembler options and diagnostics as given, then macros in order of name.
  std::vector<std::string> arguments{};
  std::vector<OptionNeed> needs{};
  /// The first macro definition that uses __DATE__, __TIME__ or __TIMESTAMP__: such a program is
  /// not cacheable. Empty for none.
  std::string time_macro{};
  /// Whether a macro definition names __FILE__ or the like, for resolve_includes().
  bool lends_place = false;
  /// What the macro definitions hold for ## to paste, for resolve_includes().
  PasteParts parts{};
  bool operator==(const CompileOptions&) const = default;
};

/// Takes every documented spelling: long and short names, "=" or the value as an argument of its
/// own, "-DX", "-D X" and "-D=X". Of a repeated single value the last one counts, as in NVRTC.
/// Errors  invalid_argument naming the option and the reason, and for an unknown one the nearest
///         known.
Result<CompileOptions> canonical_options(std::span<const std::string> options);

/// Errors  unsupported when NVRTC `major`.`minor` lacks an option.
Status check_version(const CompileOptions& options, int major, int minor);

}  // namespace kiln
