// Files that credentials come from.
//
// Threads: pure functions of files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/result.hpp"

namespace kiln::cache {

/// The text of a file that nobody but its owner and group may open, without line ends at its end.
/// `what` is what it should hold, such as "bearer token". What it holds is never shown.
/// Errors  io_failed.
Result<std::string> read_secret_file(const std::filesystem::path& file, std::string_view what);

/// The one line of such a file. Errors  invalid_argument where it has none, or several.
Result<std::string> read_secret_line(const std::filesystem::path& file, std::string_view what);

/// The headers of such a file, one a line; empty lines and those that start with # are left out.
/// Errors  invalid_argument for a line that is no header.
Result<std::vector<std::string>> read_header_file(const std::filesystem::path& file);

/// Whether `file`, which is no secret and which somebody else reads, can be opened.
/// Errors  io_failed.
Status check_readable(const std::filesystem::path& file, std::string_view what);

/// Checks who may open `file`, which somebody else reads. Errors  io_failed.
Status check_secret_file(const std::filesystem::path& file, std::string_view what);

}  // namespace kiln::cache
