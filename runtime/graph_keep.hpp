// What keeps a kernel for as long as a CUDA graph that it was captured into, the graph's clones and
// its instances.
//
// Threads: from any thread.
#pragma once

#include <cuda.h>

#include <memory>

#include "kiln/error.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln {

/// Makes `graph`, which may be one that is being captured, keep `kernel`. Takes memory.
/// Errors  driver_failed
Status keep_in_graph(CUgraph graph, std::shared_ptr<const LoadedKernel> kernel) noexcept;

/// Lets go of the kernels whose graphs are gone, which may unload them. The driver says that a
/// graph is gone from a thread of its own that may not call it, so this waits for a call of ours;
/// and for one that nobody makes in the middle of a capture, which compute-sanitizer would end.
void let_go_of_graphs_kernels() noexcept;

}  // namespace kiln
