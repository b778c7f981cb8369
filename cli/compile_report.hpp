// What kiln compile tells of one source, architecture by architecture, for people or as JSON.
//
// Threads: used by the main thread alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/source_file.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {

struct CompiledTarget {
  KernelReport report{};
  std::optional<Artifact> artifact{};  ///< empty when it failed
};

struct CompileReport {
  const SourceFile& file;
  std::string entry{};  ///< as it is asked for: a symbol or a name expression
  std::filesystem::path cache_directory{};
  std::string output_file{};  ///< where the cubin was written; empty for nowhere
  std::vector<CompiledTarget> targets{};
};

/// Writes it out, each failure with its whole log, and gives the exit code.
ExitCode tell(const CompileReport& report, Output& output);

}  // namespace kiln::cli
