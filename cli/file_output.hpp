// Bytes of a result that go to a file, or to standard output where that is no terminal.
//
// Threads: used by the main thread alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/exit_code.hpp"

namespace kiln::cli {

/// Replaces the content of the file `path`. Empty: it is written.
std::optional<Failure> write_output(const std::string& path, std::string_view bytes);

}  // namespace kiln::cli
