// Exit codes, and the one place where what went wrong becomes one.
//
// Threads: values.
#pragma once

#include <string>
#include <variant>

#include "kiln/error.hpp"

namespace kiln::cli {

enum class ExitCode : int {
  done = 0,
  failed = 1,       ///< something is missing, damaged, failed or could not be stored
  usage = 2,        ///< the command line or the environment asks for what cannot be
  environment = 3,  ///< the machine lacks what the command needs
};

/// Why a command stops.
struct Failure {
  ExitCode exit = ExitCode::failed;
  std::string code{};     ///< lower_snake, for programs
  std::string message{};  ///< one sentence or more, for people
  std::string detail{};   ///< a long text, whole; mostly empty
};

/// How a command ends: with its exit code, having reported all, or with a Failure still to report.
using Outcome = std::variant<ExitCode, Failure>;

Failure failure_of(const Error& error);
Failure usage_failure(std::string message);

}  // namespace kiln::cli
