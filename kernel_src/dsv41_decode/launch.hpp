// The swap-AB program as an engine calls it: create when the layer is built, prepare before graph
// capture, launch every step.
//
// Threads: a SwapabDecode from any thread; a LaunchDescriptor by one thread at a time.
// Lifetime: the Runtime must outlive a SwapabDecode; a LaunchDescriptor stands alone.
#pragma once

#include "kernel_src/dsv41_decode/arguments.hpp"
#include "kernel_src/dsv41_decode/plan.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels::dsv41_decode {

/// Whether a program of `key` may be launched with `arguments`: pure, reads no device memory.
/// Device pointers are multiples of 16 (`positions`: of 8, lists, lengths, sinks and scales: of 4).
/// Errors  invalid_argument naming the argument, its value and what is allowed
KILN_API Status check(const Key& key, const Arguments& arguments);

/// What a program receives. Requires check() to have passed.
KILN_API Args args_of(const Key& key, const Arguments& arguments) noexcept;

class KILN_API SwapabDecode {
 public:
  /// Registers the program; compiles nothing and needs no device. Requires the sources: see
  /// kernels::add_sources.
  /// Errors  invalid_argument as swapab::check_key(), or for sources that are missing
  static Result<SwapabDecode> create(Runtime& runtime, const Key& key);

  /// Prepares a launch for the current context's device; compiles first where no warmup has.
  /// Errors  invalid_argument as check(), for more than swapab::kMostTokens tokens and for zero
  ///         tokens, which have no launch; and all that Runtime::get and LaunchPool::prepare give
  Result<LaunchDescriptor> prepare(const Arguments& arguments, Overlap overlap = Overlap::no) const;

  /// Points a prepared launch at other arguments, of any number of tokens but zero. Allocates
  /// nothing unless it fails.
  /// Errors  invalid_argument as prepare()
  Status update(LaunchDescriptor& launch, const Arguments& arguments) const;

  /// Prepares and launches once; does nothing for zero tokens. An engine that launches every step
  /// keeps a prepared launch instead.
  /// Errors  as prepare() and LaunchDescriptor::launch
  Status launch(const Arguments& arguments, CUstream stream, Overlap overlap = Overlap::no) const;

  KernelId id() const noexcept { return id_; }
  const Key& key() const noexcept { return key_; }

 private:
  SwapabDecode(Runtime& runtime, KernelId id, const Key& key) noexcept
      : runtime_(&runtime), id_(id), key_(key) {}
  Runtime* runtime_;
  KernelId id_;
  Key key_;
};

}  // namespace kiln::kernels::dsv41_decode
