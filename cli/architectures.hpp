// Which architectures a command compiles for.
//
// Threads: used by the main thread alone.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/settings.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {

/// The architectures that are named, or else those of the devices in this machine, each once.
std::variant<std::vector<std::string>, Failure> architectures_of(const Settings& settings,
                                                                 Runtime& runtime);

/// What Kiln asks for on a device in place of `architecture`; "" where that is what it asks for.
std::string asked_instead_of(const std::string& architecture);

/// Warns of architectures that the command line or KILN_ARCH names and no run on a device asks for,
/// such as sm_90. For the end, where it is read, and where the compiler has taken them.
void warn_of_unasked(const Settings& settings, Output& output);

}  // namespace kiln::cli
