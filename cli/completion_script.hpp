// Completion scripts for shells, made from the command line's own description.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"

namespace kiln::cli {

/// The values of an option or argument that takes one of a few.
struct Choices {
  const CLI::Option* option = nullptr;
  std::vector<std::string> values{};
};

/// The shells that a script can be made for.
const std::vector<std::string>& completion_shells();

/// The script for one of them. Where an option's type is FILE or DIR, it completes those.
std::string completion_script(std::string_view shell, const CLI::App& kiln,
                              const std::vector<Choices>& choices);

}  // namespace kiln::cli
