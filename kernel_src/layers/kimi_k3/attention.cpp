#include "kernel_src/layers/kimi_k3/attention.hpp"

#include <algorithm>

#include <string>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/layers/kimi_k3/families.hpp"

namespace kiln::kernels::kimi_k3 {
namespace {

namespace mla = kimi_k3_mla;

constexpr ArgumentChecks kCheck{"kimi_k3"};

}  // namespace

Result<MlaAttention> MlaAttention::create(Runtime& runtime, const LayerOptions& layer,
                                          const DeviceInfo& device) {
  KILN_TRY(const Dispatch dispatch, dispatch_of(layer, device));
  KILN_TRY(auto attention, mla::Attention::create(runtime, programs_of(dispatch)));
  return MlaAttention(dispatch, std::move(attention));
}

Result<mla::Plan> MlaAttention::plan(const mla::Arguments& arguments) const {
  KILN_TRY(const MlaDimensions dimensions, dimensions_of(arguments));
  // The one family that there is.
  KILN_TRY(family_of(dimensions));
  KILN_TRY(const mla::Call call, mla::check(arguments));
  if (const u32 heads = kModelHeads / dispatch_.layer.tp; call.heads != heads)
    return kCheck.wrong("heads", std::to_string(call.heads),
                        "the layer was built for " + std::to_string(heads) +
                            "; see "
                            "LayerOptions::tp");
  if (arguments.split != 0)
    return kCheck.wrong("split", std::to_string(arguments.split),
                        "it must be 0: LayerOptions::split is that of all steps");
  const mla::Problem problem = call.problem();
  // A table may have room for more keys than the layer serves.
  const u64 keys =
      arguments.max_keys == 0 ? std::min(problem.keys, dispatch_.layer.max_keys) : problem.keys;
  return choose_plan(dispatch_, {problem.batch, problem.query, keys});
}

Result<mla::Launches> MlaAttention::prepare(const mla::Arguments& arguments) const {
  KILN_TRY(const mla::Plan made, plan(arguments));
  return attention_.prepare(arguments, made);
}

Status MlaAttention::update(mla::Launches& launches, const mla::Arguments& arguments) const {
  const auto made = plan(arguments);
  if (!made) {
    launches.launch_nothing();
    return made.status();
  }
  return attention_.update(launches, arguments, *made);
}

}  // namespace kiln::kernels::kimi_k3
