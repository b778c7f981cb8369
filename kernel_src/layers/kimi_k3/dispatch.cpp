#include "kernel_src/layers/kimi_k3/dispatch.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/kimi_k3_mla/plan_costs.hpp"

namespace kiln::kernels::kimi_k3 {
namespace {

namespace mla = kimi_k3_mla;
using mla::Plan;
using mla::Problem;
using mla::Programs;

constexpr ArgumentChecks kCheck{"kimi_k3"};
constexpr u32 kMostWarpSplits = 32;
constexpr u64 kFewTokens = 8;  // of a step that decodes

Status from_1(std::string_view name, u64 value, u64 most) {
  if (value >= 1 && value <= most) return {};
  return kCheck.wrong(name, std::to_string(value), "it must be from 1 to " + std::to_string(most));
}

u32 heads_of(const LayerOptions& layer) {
  return kModelHeads / layer.tp;
}

Problem problem_of(const LayerOptions& layer, const Step& step) {
  return {.heads = heads_of(layer),
          .batch = step.batch,
          .query = step.query,
          .keys = step.keys,
          .split = layer.split};
}

Result<Plan> plan_of(const Dispatch& dispatch, const Step& step) {
  return mla::plan(problem_of(dispatch.layer, step), dispatch.constants.sm_count,
                   dispatch.constants);
}

Status check_device(const DeviceInfo& device) {
  unsigned number = 0;
  const std::string& name = device.architecture;
  if (name.starts_with("sm_")) std::from_chars(name.data() + 3, name.data() + name.size(), number);
  const auto unsupported = [&](const std::string& why) {
    return Error{ErrorCode::unsupported, "kimi_k3: no kernel for \"" + name + "\"; " + why};
  };
  if (number < 90) return unsupported("it needs sm_90 or later (clusters)");
  u32 needed = 0;
  for (const u32 row_tile : {16u, 32u, 48u, 64u, 96u, mla::attend::kWideRows})
    needed = std::max(needed, mla::attend::layout(row_tile).bytes);
  if (device.shared_bytes_per_block < needed)
    return unsupported("a block needs " + std::to_string(needed) +
                       " bytes of shared memory and can have " +
                       std::to_string(device.shared_bytes_per_block));
  return {};
}

/// The largest workspace of the steps within the limits: of each small number of new tokens, then
/// of its doubles up to the limit.
Result<u64> most_workspace_bytes(const Dispatch& dispatch) {
  u64 most = 0;
  const LayerOptions& layer = dispatch.layer;
  for (u64 query = 1;; query = query < kFewTokens ? query + 1 : query * 2) {
    const u64 tokens = std::min(query, layer.max_query);
    // With a split of the layer's own the most requests need the most.
    for (u64 batch = layer.split != 0 ? layer.max_batch : 1; batch <= layer.max_batch; ++batch) {
      KILN_TRY(const Plan made, plan_of(dispatch, {batch, tokens, layer.max_keys}));
      most = std::max(most, workspace_bytes(made));
      const u64 clusters = mla::clusters_of(dispatch.constants.sm_count, made.cluster_blocks);
      if (made.items > mla::most_split_items(clusters, dispatch.constants)) break;
    }
    if (tokens == layer.max_query) return most;
  }
}

void add(std::vector<mla::attend::Key>& keys, const mla::attend::Key& key) {
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
}

Status check_step(const LayerOptions& layer, const Step& step) {
  const auto within = [](std::string_view name, u64 value, u64 most) -> Status {
    if (value <= most) return {};
    return kCheck.wrong("the step's " + std::string(name), std::to_string(value),
                        "the layer was built for at most " + std::to_string(most) +
                            "; see "
                            "LayerOptions::max_" +
                            std::string(name));
  };
  KILN_TRY(within("batch", step.batch, layer.max_batch));
  KILN_TRY(within("query", step.query, layer.max_query));
  return within("keys", step.keys, layer.max_keys);
}

}  // namespace

Status check(const LayerOptions& layer) {
  if (layer.tp == 0 || kModelHeads % layer.tp != 0)
    return kCheck.wrong("tp", std::to_string(layer.tp),
                        "it must be a divisor of 96, the model's heads");
  KILN_TRY(from_1("max_batch", layer.max_batch, mla::kMostBatch));
  KILN_TRY(from_1("max_query", layer.max_query, mla::kMostKeys));
  KILN_TRY(from_1("max_keys", layer.max_keys, mla::kMostKeys));
  if (layer.split > mla::kMostSplits)
    return kCheck.wrong("split", std::to_string(layer.split),
                        "it must be from 1 to 256, or 0 for the planner's choice");
  return {};
}

Result<Dispatch> dispatch_of(const LayerOptions& layer, const DeviceInfo& device) {
  KILN_TRY(check(layer));
  KILN_TRY(check_device(device));
  Dispatch made{.layer = layer, .constants = mla::constants_for(device)};
  // The largest step of all is one that a grid holds, and so are the others.
  if (const auto largest = plan_of(made, {layer.max_batch, layer.max_query, layer.max_keys});
      !largest)
    return largest.error();
  KILN_TRY(made.workspace_bytes, most_workspace_bytes(made));
  return made;
}

Programs programs_of(const Dispatch& dispatch) {
  const LayerOptions& layer = dispatch.layer;
  Programs made;
  // With more rows than the widest tile has, the tile stays.
  for (u64 query = 1; query <= layer.max_query; ++query) {
    const u64 rows = query * heads_of(layer);
    if (const auto planned = plan_of(dispatch, {1, query, 0}))
      add(made.attend, mla::attend::key_of(*planned));
    // Which of the two more rows take hangs by the step's requests and keys.
    if (rows > dispatch.constants.most_row_tile_rows &&
        layer.max_keys >= dispatch.constants.wide_least_keys)
      add(made.attend, {.row_tile = mla::attend::kWideRows});
    if (rows > mla::attend::kWideRows) break;
  }
  std::sort(made.attend.begin(), made.attend.end(),
            [](const auto& a, const auto& b) { return a.row_tile < b.row_tile; });

  const u64 most = layer.split != 0
                       ? layer.split
                       : mla::most_splits_of(mla::tiles_of(layer.max_keys), dispatch.constants);
  const u64 rows = layer.max_batch * layer.max_query * heads_of(layer);
  const auto reducer = [&](mla::Reducer of, bool needed) {
    if (needed) made.reduce.push_back(mla::reduce::key_of(of));
  };
  const bool by_warps = most > 1 && (layer.split == 0 || layer.split <= kMostWarpSplits);
  reducer(mla::Reducer::w4, by_warps);
  reducer(mla::Reducer::w2, by_warps && rows > 256);
  reducer(mla::Reducer::w1, by_warps && rows > 1024);
  reducer(mla::Reducer::cta, most > kMostWarpSplits);
  return made;
}

Result<Plan> choose_plan(const Dispatch& dispatch, const Step& step) {
  KILN_TRY(check_step(dispatch.layer, step));
  Dispatch within = dispatch;
  for (;;) {
    Result<Plan> made = plan_of(within, step);
    if (!made || workspace_bytes(*made) <= dispatch.workspace_bytes) return made;
    // No plan of one split needs a workspace, so this ends.
    within.constants.most_splits = made->num_split - 1;
    within.layer.split = 0;
  }
}

}  // namespace kiln::kernels::kimi_k3
