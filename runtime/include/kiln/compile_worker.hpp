// The other side of RuntimeOptions::worker_command: a process that compiles what a Runtime hands
// it, so that a compiler that crashes, runs wild or eats all memory takes nobody with it.
//
// Threads: the main one, alone.
#pragma once

#include "kiln/cache/api.hpp"

namespace kiln {

/// Serves the Runtime at the other end of standard input until that goes away, and returns what
/// main() is to return. Call it in a process of its own, before anything else: an engine names
/// itself with an argument of its choice as the worker command, and calls this where it gets it.
KILN_API int serve_compiles();

}  // namespace kiln
