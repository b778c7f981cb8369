#include "cli/exit_code.hpp"

#include <utility>

namespace kiln::cli {
namespace {

ExitCode exit_code_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::none:
      return ExitCode::done;
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:  // a whole call is refused so only for an architecture in it
      return ExitCode::usage;
    case ErrorCode::no_toolchain:
    case ErrorCode::no_device:
    case ErrorCode::driver_failed:
    case ErrorCode::capture_active:
      return ExitCode::environment;
    case ErrorCode::not_cacheable:
    case ErrorCode::compile_failed:
    case ErrorCode::io_failed:
    case ErrorCode::sealed:
    case ErrorCode::not_ready:
      return ExitCode::failed;
  }
  return ExitCode::failed;
}

}  // namespace

Failure failure_of(const Error& error) {
  return {.exit = exit_code_of(error.code()),
          .code = std::string(to_string(error.code())),
          .message = error.message(),
          .detail = std::string(error.detail())};
}

Failure usage_failure(std::string message) {
  return {.exit = ExitCode::usage, .code = "usage", .message = std::move(message)};
}

}  // namespace kiln::cli
