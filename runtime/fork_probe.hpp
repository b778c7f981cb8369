// Whether NVRTC still answers in a forked child: other libraries of the process, PyTorch say, call
// it as well, and what a thread of theirs held when the process forked is held for ever.
//
// Threads: any.
#pragma once

#include "runtime/nvrtc_library.hpp"

namespace kiln {

/// Does `work`, a short compile, on a thread of its own. False once that has stood still for a
/// second: the thread is then left where it is.
bool answers_after_fork(const NvrtcLibrary& nvrtc, void (*work)(const NvrtcLibrary&));

}  // namespace kiln
