// What NVRTC's log says of a failed compile.
//
// Threads: pure functions, but for a look at directories.
#pragma once

#include <string>
#include <string_view>

#include "runtime/program.hpp"

namespace kiln {

/// A header that was read when the key was made and that NVRTC could not open: it has just been
/// removed, or no descriptor was left. Empty for any other failure.
std::string lost_header(std::string_view log, const IncludeClosure& closure);

/// Names the header when the failure is a missing one, the usual first stumble of NVRTC's users;
/// else empty.
std::string missing_header_help(std::string_view log, const Program& program);

/// The cure, after "; ", where the log's first error has one that the log does not name: a constant
/// that the key lacks or a macro replaces, an instruction that the architecture lacks and that of
/// devices has, what a program alone cannot do. Else empty.
std::string cure_of(std::string_view error, std::string_view architecture);

/// The front end and the assembler say so in the log, of a program that may be right.
bool ran_out_of_memory(std::string_view log);

}  // namespace kiln
