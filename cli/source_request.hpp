// A kernel in a source of the user's own, as kiln compile and kiln explain take it from the command
// line, registered in a Runtime.
//
// Threads: used by the main thread alone.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/completion_script.hpp"
#include "cli/exit_code.hpp"
#include "cli/settings.hpp"
#include "cli/source_file.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {

struct SourceArguments {
  std::string file{};
  std::string entry{};
  std::string name_expression{};
  std::vector<std::string> key{};
  std::vector<std::string> macros{};
  std::vector<std::string> include_roots{};
  std::string standard{};
  bool line_info = false;
  bool debug = false;
  std::vector<std::string> options{};
};

/// All options but FILE itself; gives the values of the one that takes one of a few.
Choices add_source_options(CLI::App& verb, SourceArguments& arguments);

struct SourceRequest {
  SourceFile file{};
  KernelSpec spec{};
  Runtime runtime;
  KernelId id{};
};

/// Reads the file and registers its kernel.
std::variant<SourceRequest, Failure> open_source(const SourceArguments& arguments,
                                                 const Settings& settings, LogSink log);

}  // namespace kiln::cli
