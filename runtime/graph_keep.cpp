#include "runtime/graph_keep.hpp"

#include <dlfcn.h>

#include <atomic>
#include <new>
#include <utility>

namespace kiln {
namespace {

struct Kept {
  std::shared_ptr<const LoadedKernel> kernel;
  Kept* next = nullptr;
};

// Those whose graphs are gone.
std::atomic<Kept*> gone{nullptr};

void put(Kept* kept) {
  kept->next = gone.load(std::memory_order_relaxed);
  while (!gone.compare_exchange_weak(kept->next, kept, std::memory_order_release,
                                     std::memory_order_relaxed)) {
  }
}

// The driver's call when the last graph with a user object goes.
void CUDA_CB graph_is_gone(void* kept) {
  put(static_cast<Kept*>(kept));
}

// The driver may make its call after the library or the plugin that holds this code was closed: it
// stays loaded from the first one that can come.
void stay_loaded() {
  [[maybe_unused]] static void* const stays = [] {
    Dl_info here{};
    return ::dladdr(reinterpret_cast<const void*>(&graph_is_gone), &here) == 0
               ? nullptr
               : ::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }();
}

// Lets go of what graphs left, but for kernels other than `kernel` where one is given.
void let_go(const LoadedKernel* kernel) {
  if (gone.load(std::memory_order_relaxed) == nullptr) return;
  auto* first = gone.exchange(nullptr, std::memory_order_acquire);
  while (first != nullptr) {
    auto* const kept = std::exchange(first, first->next);
    if (kernel != nullptr && kept->kernel.get() != kernel)
      put(kept);
    else
      delete kept;
  }
}

}  // namespace

Status keep_in_graph(CUgraph graph, std::shared_ptr<const LoadedKernel> kernel) noexcept {
  const auto& library = kernel->library();
  const auto& api = library.driver();
  // A server that captures again and again opens no other Runtime. The caller holds this kernel, so
  // that nothing is unloaded.
  let_go(kernel.get());
  stay_loaded();
  auto* kept = new (std::nothrow) Kept{std::move(kernel)};
  if (kept == nullptr) return api.failed("cuUserObjectCreate", CUDA_ERROR_OUT_OF_MEMORY);
  CUuserObject object = nullptr;
  if (const auto result = api.cuUserObjectCreate(&object, kept, &graph_is_gone, 1,
                                                 CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
      result != CUDA_SUCCESS) {
    auto error = library.failed("cuUserObjectCreate", result);
    delete kept;
    return error;
  }
  const auto result = api.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (result == CUDA_SUCCESS) return {};
  auto error = library.failed("cuGraphRetainUserObject", result);
  api.cuUserObjectRelease(object, 1);
  return error;
}

void let_go_of_graphs_kernels() noexcept {
  let_go(nullptr);
}

}  // namespace kiln
