// The attention and its reducer as an engine calls them: create when the layer is built, prepare
// before graph capture, update and launch every step.
//
// Threads: an Attention from any thread; a Launches by one thread at a time.
// Lifetime: the Runtime must outlive an Attention, and must not be moved meanwhile.
// A Launches stands alone.
#pragma once

#include <vector>

#include "kernel_src/kimi_k3_mla/contract.hpp"
#include "kernel_src/kimi_k3_mla/key.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels::kimi_k3_mla {

/// The launches of a call: the attention program of its row tile, then its reducer, which starts
/// while that ends (programmatic dependent launch).
class KILN_API Launches {
 public:
  Launches();
  Launches(Launches&& other) noexcept;
  Launches& operator=(Launches&& other) noexcept;
  ~Launches();

  /// Does nothing for a call without tokens.
  /// Errors  as LaunchDescriptor::launch
  Status launch(CUstream stream) noexcept;

  /// As after an update that failed.
  void launch_nothing() noexcept { chosen_attend_ = chosen_reduce_ = nullptr; }

  /// That they were last prepared or updated for.
  const Plan& plan() const noexcept { return plan_; }

 private:
  friend class Attention;
  // With its program's key: the attention that updates them may have others, in another order.
  template <class Key>
  struct Prepared {
    Key key;
    LaunchDescriptor launch;
  };
  std::vector<Prepared<attend::Key>> attend_;
  std::vector<Prepared<reduce::Key>> reduce_;
  LaunchDescriptor* chosen_attend_ = nullptr;  // null: nothing to launch
  LaunchDescriptor* chosen_reduce_ = nullptr;  // null: no splits
  std::vector<TensorMapBuilder> maps_;  // of the latent part of the cache and of its rope part
  Plan plan_{};
};

class KILN_API Attention {
 public:
  /// Registers the programs; compiles nothing and needs no device. Requires the sources: see
  /// kernels::add_sources.
  /// Errors  invalid_argument as attend::check_key and reduce::check_key, or for missing sources
  static Result<Attention> create(Runtime& runtime, const Programs& programs);

  /// Prepares a launch of every program for the current context's device, so that updates may
  /// choose any; compiles first where no warmup has. Points them at the call.
  /// Errors  as check(), check_device() and check_workspace(); invalid_argument for a plan whose
  ///         program is not among those of create(), and for one that was made for other clusters;
  ///         and all that Runtime::get and LaunchPool::prepare give
  Result<Launches> prepare(const Arguments& arguments, const Plan& plan) const;

  /// Points prepared launches at another call. `plan` is one of it. Allocates nothing unless it
  /// fails; then they launch nothing until an update succeeds. Another attention's launches are
  /// updated too, where they were prepared with the plan's programs.
  /// Errors  as prepare()
  Status update(Launches& launches, const Arguments& arguments, const Plan& plan) const;

  /// Those of attention first, in the order of create().
  std::vector<KernelId> kernels() const;

 private:
  template <class Key>
  struct Registered {
    Key key;
    KernelId id;
  };
  explicit Attention(Runtime& runtime) noexcept : runtime_(&runtime) {}
  Runtime* runtime_;
  std::vector<Registered<attend::Key>> attend_;
  std::vector<Registered<reduce::Key>> reduce_;
};

}  // namespace kiln::kernels::kimi_k3_mla
