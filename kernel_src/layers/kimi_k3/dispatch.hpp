// Which kernels an MLA layer of Kimi-K3 may need, and which a step takes.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>

#include "kernel_src/kimi_k3_mla/key.hpp"
#include "kernel_src/kimi_k3_mla/plan.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/device_info.hpp"
#include "kiln/error.hpp"

namespace kiln::kernels::kimi_k3 {

inline constexpr u32 kModelHeads = 96;

/// An MLA layer on this rank, and the limits that it is served with.
struct LayerOptions {
  u32 tp = 8;              // ranks that share the model's 96 heads
  u64 max_batch = 256;     // requests of a step
  u64 max_query = 8;       // new tokens of a request in a step
  u64 max_keys = 1 << 20;  // of a request
  /// Splits of the keys, 1 to 256, the same in every step: a row's output is then the same to the
  /// bit on every machine and, among steps of one route and row tile, whatever else is in its
  /// batch. 0: the planner's choice.
  u32 split = 0;
};

/// Errors  invalid_argument naming the field, its value and what is allowed.
KILN_API Status check(const LayerOptions& layer);

/// A step, by its largest request.
struct Step {
  u64 batch = 0;
  u64 query = 0;
  /// What the step is planned for; right for every length. Under CUDA graphs the largest that a
  /// replay may have.
  u64 keys = 0;
};

/// What is decided when a layer is built.
struct Dispatch {
  LayerOptions layer{};
  kimi_k3_mla::Constants constants{};
  /// Of any step: what a workspace needs that all of them share.
  u64 workspace_bytes = 0;
};

/// Errors  invalid_argument as check(); unsupported for a device without clusters or with too
///         little shared memory for a block
KILN_API Result<Dispatch> dispatch_of(const LayerOptions& layer, const DeviceInfo& device);

/// The programs that steps within the limits may take, by row tile: what is registered when a layer
/// is built.
KILN_API kimi_k3_mla::Programs programs_of(const Dispatch& dispatch);

/// The plan of a step, of programs_of() and within Dispatch::workspace_bytes: it is the planner's
/// but where a step of fewer keys than the limit, or of a number of new tokens between 8 and the
/// limit that is no power of two, would split so finely that it needed more.
/// Errors  invalid_argument naming the limit that the step does not keep to
KILN_API Result<kimi_k3_mla::Plan> choose_plan(const Dispatch& dispatch, const Step& step);

}  // namespace kiln::kernels::kimi_k3
