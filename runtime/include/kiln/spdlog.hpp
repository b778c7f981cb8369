// The ready log sinks over spdlog: the CLI and the examples use them. Link kiln::spdlog for the one
// that brings its own spdlog; the runtime itself does not.
//
// Threads: the sinks may be called from any thread.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "kiln/cache/api.hpp"
#include "kiln/log.hpp"

namespace kiln {

/// Passes everything to `logger`, a spdlog::logger, which decides what is shown. It is compiled by
/// who calls it, hence for the spdlog of the caller, whatever Kiln was built with.
template <class Logger>
LogSink spdlog_sink(std::shared_ptr<Logger> logger) {
  return [logger = std::move(logger)](LogLevel level, std::string_view message) {
    using Level = decltype(logger->level());
    constexpr int kTrace = 1;  // one level more, below ours
    // The message goes in as an argument: as a format it would be read for braces.
    logger->log(static_cast<Level>(static_cast<int>(level) + kTrace), "{}", message);
  };
}

/// One line a message on standard error, with colours on a terminal; drops what is below `least`.
KILN_API LogSink spdlog_stderr_sink(LogLevel least);

}  // namespace kiln
