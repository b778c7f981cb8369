// The text of a file that a command is given.
//
// Threads: pure functions.
#pragma once

#include <filesystem>
#include <string>

#include "kiln/error.hpp"

namespace kiln::cli {

/// All that is in the file `path`, which may block where it is a pipe or a device.
/// Errors  io_failed, with the system's reason alone: the caller knows what the file is to it.
Result<std::string> read_whole(const std::filesystem::path& path);

}  // namespace kiln::cli
