// The decode attention of a DeepSeek-V4.1 layer as an engine calls it: create when the layer is
// built, warm up, prepare before graph capture; then, every step, write the caches and attend.
//
//   KILN_TRY(auto layer, DecodeAttention::create(runtime, {.tp = 4, .ratio = 2}, device));
//   KILN_TRY(runtime.warmup());
//   KILN_TRY(auto launches, layer.prepare(step));
//   ...                                                                // every step:
//   KILN_TRY(layer.update(launches, step));
//   KILN_TRY(launches.insert(stream));
//   KILN_TRY(launches.attend(stream));
//
// Threads: a DecodeAttention from any thread; a StepLaunches by one thread at a time.
// Lifetime: the Runtime must outlive a DecodeAttention, and must not be moved meanwhile.
// A StepLaunches stands alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernel_src/dsv41_decode/launch.hpp"
#include "kernel_src/dsv41_kv_insert/launch.hpp"
#include "kernel_src/layers/deepseek_v41/dispatch.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels::deepseek_v41 {

/// A paged cache in one step: what is written to it, then what is read. Device pointers.
struct StepCache {
  void* base = nullptr;  // [pages], `page_stride_bytes` apart
  std::uint64_t pages = 0;
  std::uint64_t page_stride_bytes = 0;
  std::uint64_t row_stride_bytes = 0;       // slot to slot; 0: the record's bytes
  const void* rows = nullptr;               // [tokens, 512] bf16, not rotated
  std::uint64_t input_stride_bytes = 0;     // row to row; 0: 1024, without a gap
  const std::int64_t* row_slots = nullptr;  // [tokens]; negative: the row is not written
  const std::int32_t* slots = nullptr;      // [tokens, width]: what each token attends to
  const std::int32_t* lengths = nullptr;    // [tokens]
};

/// One step of one layer. Device pointers, aligned as the kernels' own arguments.
struct Step {
  std::uint64_t tokens = 0;     // from 1; padding, which has position -1 and slots -1, counts
  const void* query = nullptr;  // [tokens, heads, 512] bf16, not rotated
  std::uint64_t query_stride_bytes = 0;     // token to token; 0: heads * 1024, without a gap
  void* padded_query = nullptr;             // [tokens, 32, 64, 16] bf16: scratch, layers may share
  const std::int64_t* positions = nullptr;  // [tokens]
  const float* cos_sin = nullptr;           // [rope_positions, 32 cos then 32 sin]
  std::uint64_t rope_positions = 0;
  const float* sinks = nullptr;  // [heads]; null: none
  StepCache swa{};               // fp8 records
  u32 swa_slots = 128;           // width of its lists: LayerOptions::window or widened_window
  /// LayerOptions::record; empty in a layer of ratio 0. Without `rows`, in every step or in none,
  /// nothing is written: the layer reads the cache of another.
  StepCache compressed{};
  void* output = nullptr;  // MXFP8, data and scales, as dsv41_decode::Arguments has them
  void* output_scales = nullptr;
  std::uint64_t output_stride_bytes = 0;
  std::uint64_t scale_group_stride_words = 0;
  std::uint64_t scale_column_stride_words = 0;
};

/// The launches of a step. Each may start while the kernel before it in the stream ends, and waits
/// for its results (programmatic dependent launch).
class KILN_API StepLaunches {
 public:
  /// Writes the step's rows to the caches, and its query padded to 64 heads.
  /// Errors  as LaunchDescriptor::launch; invalid_argument for launches of no step, which empty
  ///         ones are, and those whose last update failed
  Status insert(CUstream stream) noexcept;
  /// Attends to what the lists name, rows of this step among it. After insert(). Errors  as
  /// insert()
  Status attend(CUstream stream) noexcept;

  /// Of the step that they were last prepared or updated for.
  const Choice& choice() const noexcept { return choice_; }

 private:
  friend class DecodeAttention;
  Status check() const noexcept;
  LaunchDescriptor insert_;
  LaunchDescriptor compressed_insert_;         // empty where the layer reads another's cache
  std::array<LaunchDescriptor, 3> attention_;  // swap-AB, mega, mega of the widened window
  std::size_t chosen_ = 0;                     // of them; their count for no step
  Choice choice_{};
  LayerOptions layer_{};
};

class KILN_API DecodeAttention {
 public:
  /// Registers all kernels that steps of the layer may take; compiles nothing and needs no GPU.
  /// Layers with equal keys share them. Requires the sources: see kernels::add_sources.
  /// Errors  invalid_argument as check(), or for sources that are missing; unsupported for a device
  ///         that dsv41_mega_decode cannot run on
  static Result<DecodeAttention> create(Runtime& runtime, const LayerOptions& layer,
                                        const DeviceInfo& device);

  /// Prepares every launch that steps of this layer may need, whatever they choose, for the current
  /// context's device; compiles first where no warmup has. `step` is chosen for.
  /// Errors  invalid_argument for arguments that a kernel does not take, zero tokens, and lists of
  ///         a width that the layer does not have; and all that Runtime::get and
  ///         LaunchPool::prepare give
  Result<StepLaunches> prepare(const Step& step) const;

  /// Points prepared launches at another step and chooses anew. Allocates nothing unless it fails;
  /// then the launches launch nothing until an update succeeds.
  /// Errors  as prepare(); invalid_argument for launches of a layer of other options or none
  Status update(StepLaunches& launches, const Step& step) const;

  /// For choose_kernel().
  const Dispatch& dispatch() const noexcept { return dispatch_; }
  /// What is registered: cache writers first, then decode kernels.
  std::vector<KernelId> kernels() const;

 private:
  DecodeAttention(const LayerOptions& layer, const Dispatch& dispatch,
                  const dsv41_kv_insert::KvInsert& insert, const dsv41_decode::MegaDecode& mega)
      : layer_(layer), dispatch_(dispatch), insert_(insert), mega_(mega) {}
  Status check_step(const Step& step) const;
  Status check_launches(const StepLaunches& launches) const;
  LayerOptions layer_;
  Dispatch dispatch_;
  dsv41_kv_insert::KvInsert insert_;  // of the sliding window, with the query
  std::optional<dsv41_kv_insert::KvInsert> compressed_insert_;
  std::optional<dsv41_decode::SwapabDecode> swapab_;
  dsv41_decode::MegaDecode mega_;
  std::optional<dsv41_decode::MegaDecode> widened_;
};

}  // namespace kiln::kernels::deepseek_v41
