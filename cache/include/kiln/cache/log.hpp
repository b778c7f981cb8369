// The log sink: where every part of Kiln reports. The library writes to no stream by itself.
//
// Threads: a sink is called from any thread, must not throw, and must not call back into the
// object that logs.
#pragma once

#include <functional>
#include <string_view>

#include "kiln/cache/api.hpp"

namespace kiln {

enum class LogLevel : unsigned char { debug, info, warning, error };

/// The lower-case name of `level`.
KILN_API std::string_view to_string(LogLevel level) noexcept;

/// Receives one message, without a line end. An empty function drops everything.
using LogSink = std::function<void(LogLevel, std::string_view)>;

}  // namespace kiln
