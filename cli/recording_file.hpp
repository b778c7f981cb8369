// Recordings in files, as KILN_RECORD writes them.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "kiln/record.hpp"

namespace kiln::cli {

/// Whether the file holds a recording, and no manifest or nothing that can be read.
bool holds_recording(const std::string& file);

/// Errors  invalid_argument when it cannot be read or is no recording.
Result<Recording> read_recording_file(const std::string& file);

}  // namespace kiln::cli
