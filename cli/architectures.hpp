// Which targets a command compiles for.
//
// Threads: used by the main thread alone.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/settings.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {

/// The targets that are named, or else those of the devices in this machine, each once.
std::variant<std::vector<std::string>, Failure> architectures_of(const Settings& settings,
                                                                 Runtime& runtime);

}  // namespace kiln::cli
