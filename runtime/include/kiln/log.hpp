// LogLevel and LogSink, under the name that users of the runtime look for.
#pragma once

#include "kiln/cache/log.hpp"
