// A program: all that NVRTC will be handed for one kernel, and the compile key that names it.
//
// The key is made from the same object that is compiled, so nothing that the compiler can read is
// missing from it. Nothing in it depends on a path, time, user, host, driver or environment, but
// for IncludeClosure::place and Program::same_files.
// Threads: values; immutable once made.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"
#include "runtime/compile_options.hpp"
#include "runtime/file_memo.hpp"
#include "runtime/include_closure.hpp"
#include "runtime/include_roots.hpp"
#include "runtime/source_set.hpp"
#include "runtime/toolchain.hpp"

namespace kiln {

struct Program {
  KernelSpec spec{};
  CompileOptions options{};
  IncludeClosure closure{};
  /// "b // a" for each header that is the header a as well, through a link: to "#pragma once" the
  /// two are one.
  std::vector<std::string> same_files{};
  /// Where angle includes were looked for; for messages, not in the key.
  std::vector<std::filesystem::path> searched_directories{};
  /// Toolkits that were found and not used, with the reason; for messages.
  std::vector<std::string> skipped_toolkits{};
};

/// Checks `spec` and resolves everything it includes.
/// Errors  invalid_argument and not_cacheable as Runtime::add says.
Result<Program> make_program(const KernelSpec& spec, const SourceSet& sources,
                             std::span<const IncludeRoot> roots, FileMemo& memo);

/// Raise it when the same inputs must give other entries: a new key format, other options that the
/// compiler adds by itself, another form of the facts.
inline constexpr int kKeySchema = 1;

/// The canonical key text and its digest, the entry's name.
struct CompileKey {
  std::string text{};
  cache::Digest name{};
};

CompileKey key_of(const Program& program, std::string_view architecture,
                  const ToolchainId& toolchain);

/// The toolchain that stands in a key text; empty for a text that key_of() did not make.
std::optional<ToolchainId> toolchain_in(std::string_view key_text);

}  // namespace kiln
