// The ready log sink over spdlog, for programs that want one: the CLI and the examples use it.
// Link kiln::spdlog for it; the runtime itself does not.
//
// Threads: the sinks may be called from any thread.
#pragma once

#include <memory>

#include "kiln/cache/api.hpp"
#include "kiln/log.hpp"

namespace spdlog {
class logger;
}

namespace kiln {

/// Passes everything to `logger`, which decides what is shown.
KILN_API LogSink spdlog_sink(std::shared_ptr<spdlog::logger> logger);

/// One line a message on standard error, with colours on a terminal; drops what is below `least`.
KILN_API LogSink spdlog_stderr_sink(LogLevel least);

}  // namespace kiln
