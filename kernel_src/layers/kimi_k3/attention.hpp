// The MLA of a Kimi-K3 layer as an engine calls it: create when the layer is built, warm up,
// prepare before graph capture; then, every step, attend.
//
//   KILN_TRY(auto layer, MlaAttention::create(runtime, {.tp = 8, .max_batch = 64}, device));
//   KILN_TRY(runtime.warmup());
//   KILN_TRY(auto launches, layer.prepare(arguments));
//   ...                                                                // every step:
//   KILN_TRY(layer.update(launches, arguments));
//   KILN_TRY(launches.launch(stream));
//
// A captured step serves all lengths, tables and numbers of tokens in its tensors, which the
// kernels read anew; it needs an update, and a new capture, for other tensors only.
//
// Threads: an MlaAttention from any thread; a Launches by one thread at a time.
// Lifetime: the Runtime must outlive an MlaAttention, and must not be moved meanwhile.
// A Launches stands alone.
#pragma once

#include <utility>
#include <vector>

#include "kernel_src/kimi_k3_mla/launch.hpp"
#include "kernel_src/layers/kimi_k3/dispatch.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels::kimi_k3 {

class KILN_API MlaAttention {
 public:
  /// Registers all programs that steps of the layer may take; compiles nothing and needs no GPU.
  /// Layers with equal limits share them. Requires the sources: see kernels::add_sources.
  /// Errors  as dispatch_of(); invalid_argument for sources that are missing
  static Result<MlaAttention> create(Runtime& runtime, const LayerOptions& layer,
                                     const DeviceInfo& device);

  /// Prepares every launch that steps may need, for the current context's device; compiles first
  /// where no warmup has. The family is chosen by the dimensions of the tensors, the plan for
  /// `arguments`, whose `split` must be 0: LayerOptions has it.
  /// Errors  as family_of(), choose_plan() and kimi_k3_mla::Attention::prepare; invalid_argument
  ///         for heads that are not the layer's
  Result<kimi_k3_mla::Launches> prepare(const kimi_k3_mla::Arguments& arguments) const;

  /// Points prepared launches at another step and plans anew. Allocates nothing unless it fails;
  /// then they launch nothing until an update succeeds.
  /// Errors  as prepare()
  Status update(kimi_k3_mla::Launches& launches, const kimi_k3_mla::Arguments& arguments) const;

  const Dispatch& dispatch() const noexcept { return dispatch_; }
  /// Of every step: what Arguments::workspace must have.
  u64 workspace_bytes() const noexcept { return dispatch_.workspace_bytes; }
  std::vector<KernelId> kernels() const { return attention_.kernels(); }

 private:
  MlaAttention(const Dispatch& dispatch, kimi_k3_mla::Attention attention)
      : dispatch_(dispatch), attention_(std::move(attention)) {}
  Result<kimi_k3_mla::Plan> plan(const kimi_k3_mla::Arguments& arguments) const;
  Dispatch dispatch_;
  kimi_k3_mla::Attention attention_;
};

}  // namespace kiln::kernels::kimi_k3
