// The decode programs as an engine calls them: create when the layer is built, prepare before graph
// capture, launch every step.
//
// Threads: a Decode from any thread; a LaunchDescriptor by one thread at a time.
// Lifetime: the Runtime must outlive a Decode, and must not be moved meanwhile.
// A LaunchDescriptor stands alone.
#pragma once

#include <algorithm>

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

namespace swapab {

/// Which program a SwapabDecode is.
struct Program {
  Key key{};
  Program(const Key& of) noexcept : key(of) {}  // NOLINT: a key says it all
  Status check() const { return check_key(key); }
  KernelSpec spec() const { return spec_of(key); }
  LaunchShape shape(std::uint64_t tokens) const noexcept {
    return plan_of(key, tokens, blocks_for(key, tokens)).shape;
  }
  /// For devices that hold no cluster of the other one.
  LaunchShape portable_shape(std::uint64_t tokens) const noexcept {
    return plan_of(key, tokens, blocks_for(key, std::max(tokens, kMostSmallTokens + 1))).shape;
  }
};

}  // namespace swapab

namespace mega {

/// Which program a MegaDecode is, and how it shares out a token.
struct Program {
  Key key{};
  /// Blocks that share a token, 2 to 8; 0: blocks_for(). With a number a token's output is the same
  /// to the bit whatever else is in its batch.
  u32 blocks = 0;
  Program(const Key& of, u32 blocks_of_a_token = 0) noexcept  // NOLINT: a key is enough
      : key(of), blocks(blocks_of_a_token) {}
  /// Errors  as check_key(); invalid_argument for other numbers of blocks
  KILN_API Status check() const;
  KernelSpec spec() const { return spec_of(key); }
  LaunchShape shape(std::uint64_t tokens) const noexcept {
    return plan_of(key, tokens, blocks == 0 ? blocks_for(key, tokens) : blocks).shape;
  }
  LaunchShape portable_shape(std::uint64_t tokens) const noexcept { return shape(tokens); }
};

}  // namespace mega

template <class Program>
class Decode {
 public:
  /// Registers the program; compiles nothing and needs no device. Requires the sources: see
  /// kernels::add_sources.
  /// Errors  invalid_argument as Program::check(), or for sources that are missing
  static Result<Decode> create(Runtime& runtime, const Program& program);

  /// Prepares a launch for the current context's device; compiles first where no warmup has.
  /// Errors  invalid_argument as check() and for zero tokens, which have no launch; and all that
  /// Runtime::get and LaunchPool::prepare give
  Result<LaunchDescriptor> prepare(const Arguments& arguments, Overlap overlap = Overlap::no) const;

  /// Points a prepared launch at other arguments, of any number of tokens but zero. Allocates
  /// nothing unless it fails. Requires a launch of a Decode with an equal key.
  /// Errors  as prepare()
  Status update(LaunchDescriptor& launch, const Arguments& arguments) const;

  /// Prepares and launches once; does nothing for zero tokens. An engine that launches every step
  /// keeps a prepared launch instead.
  /// Errors  as prepare() and LaunchDescriptor::launch
  Status launch(const Arguments& arguments, CUstream stream, Overlap overlap = Overlap::no) const;

  KernelId id() const noexcept { return id_; }
  const Key& key() const noexcept { return program_.key; }

 private:
  Decode(Runtime& runtime, KernelId id, const Program& program) noexcept
      : runtime_(&runtime), id_(id), program_(program) {}
  Runtime* runtime_;
  KernelId id_;
  Program program_;
};

extern template class KILN_API Decode<swapab::Program>;
extern template class KILN_API Decode<mega::Program>;

/// Few heads and few tokens: see swapab::plan.
using SwapabDecode = Decode<swapab::Program>;
/// Everything else: see mega::plan.
using MegaDecode = Decode<mega::Program>;

}  // namespace kiln::kernels::dsv41_decode
