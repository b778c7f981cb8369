// The cache writer as an engine calls it: create when the layer is built, prepare before graph
// capture, launch every step.
//
// Threads: a KvInsert from any thread; a LaunchDescriptor by one thread at a time.
// Lifetime: the Runtime must outlive a KvInsert, and must not be moved meanwhile.
// A LaunchDescriptor stands alone.
#pragma once

#include <cstdint>

#include "kernel_src/dsv41_kv_insert/plan.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels::dsv41_kv_insert {

/// One call. All pointers are device pointers, multiples of 16 (`positions` and `slots`: of 8).
/// What is written lies apart from what is read; it may lie in the gaps that strides leave.
struct Arguments {
  const void* query = nullptr;              // [tokens, heads, 512] bf16; null without a query part
  void* padded_query = nullptr;             // [tokens, 32, 64, 16] bf16; null without a query part
  const void* rows = nullptr;               // [tokens, 512] bf16
  const std::int64_t* positions = nullptr;  // [tokens]
  const std::int64_t* slots = nullptr;      // [tokens]; negative: the row is not written
  const float* cos_sin = nullptr;           // [rope_positions, 32 cos then 32 sin]
  void* cache = nullptr;                    // [pages], `page_stride_bytes` apart
  std::uint64_t query_stride_bytes = 0;     // token to token; 0: heads * 1024, without a gap
  std::uint64_t input_stride_bytes = 0;     // row to row; 0: 1024, without a gap
  std::uint64_t page_stride_bytes = 0;
  std::uint64_t row_stride_bytes = 0;  // slot to slot; 0: the record's bytes, without a gap
  std::uint64_t pages = 0;
  std::uint64_t rope_positions = 0;
  std::uint64_t tokens = 0;  // 0: nothing is read, written or launched
};

/// Whether the kernel of `key` may be launched with `arguments`: pure, reads no device memory.
/// Errors  invalid_argument naming the argument, its value and what is allowed
KILN_API Status check(const Key& key, const Arguments& arguments);

/// What the kernel receives. Requires check() to have passed.
KILN_API Args args_of(const Key& key, const Arguments& arguments, const Plan& plan) noexcept;

class KILN_API KvInsert {
 public:
  /// Registers the kernel; compiles nothing and needs no device. `problem.tokens` plays no part.
  /// Requires the sources: see kernels::add_sources.
  /// Errors  invalid_argument for a problem that has no kernel or sources that are missing
  static Result<KvInsert> create(Runtime& runtime, const Problem& problem);

  /// Prepares a launch for the current context's device; compiles first where no warmup has.
  /// Errors  invalid_argument as check() and for zero tokens, which have no launch; and all that
  ///         Runtime::get and LaunchPool::prepare give
  Result<LaunchDescriptor> prepare(const Arguments& arguments, Overlap overlap = Overlap::no) const;

  /// Points a prepared launch at other arguments, of any number of tokens but zero. Allocates
  /// nothing unless it fails. Requires a launch of a KvInsert with an equal key.
  /// Errors  invalid_argument as prepare()
  Status update(LaunchDescriptor& launch, const Arguments& arguments) const;

  /// Prepares and launches once; does nothing for zero tokens. An engine that launches every step
  /// keeps a prepared launch instead.
  /// Errors  as prepare() and LaunchDescriptor::launch
  Status launch(const Arguments& arguments, CUstream stream, Overlap overlap = Overlap::no) const;

  KernelId id() const noexcept { return id_; }
  const Key& key() const noexcept { return key_; }

 private:
  KvInsert(Runtime& runtime, KernelId id, const Key& key) noexcept
      : runtime_(&runtime), id_(id), key_(key) {}
  Runtime* runtime_;
  KernelId id_;
  Key key_;
};

}  // namespace kiln::kernels::dsv41_kv_insert
