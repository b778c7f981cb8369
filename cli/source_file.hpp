// The file that kiln compile is given: its text, and the names that it and its neighbours go by.
//
// Threads: values; used by the main thread alone.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <variant>

#include "cli/exit_code.hpp"

namespace kiln::cli {

struct SourceFile {
  std::string typed{};  ///< as the command line has it
  std::string text{};
  /// Include name: the file's own, or its path below the source directory that it lies in. Never
  /// where it lies: that is not part of a key.
  std::string name{};
  /// RuntimeOptions::source_directory: the directory that `name` starts from.
  std::filesystem::path source_directory{};
  /// `source_directory` as messages show it, with a slash at its end or empty.
  std::string shown_directory{};
  /// Where its quoted includes are looked for as well; empty when the source directory does.
  std::filesystem::path own_directory{};
};

/// Reads the file `typed`. `source_directory` is KILN_SOURCE_DIR or empty.
std::variant<SourceFile, Failure> read_source_file(const std::string& typed,
                                                   const std::filesystem::path& source_directory);

/// `log` with the names of `file` and of what lies beside it as the user would type them.
std::string as_typed(const SourceFile& file, std::string_view log);

}  // namespace kiln::cli
