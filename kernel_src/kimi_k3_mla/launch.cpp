#include "kernel_src/kimi_k3_mla/launch.hpp"

#include <string>
#include <utility>

#include "kernel_src/argument_checks.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla"};

/// The cache as boxes of a page's keys by `box_dims` elements.
TensorMapSpec map_of(const Call& call, u32 box_dims, Swizzle swizzle) {
  return {.address = call.cache,
          .type = ElementType::u8,
          .rank = 3,
          .extents = {kKeyDim, kPageKeys, call.pages},
          .strides_bytes = {call.row_stride_bytes, call.page_stride_bytes},
          .box = {box_dims, kPageKeys, 1},
          .swizzle = swizzle,
          .l2_promotion = L2Promotion::bytes_128};
}

/// Where `key` stands among the prepared ones; their count where it does not.
template <class Prepared, class Key>
std::size_t place_of(const Prepared& programs, const Key& key) {
  std::size_t place = 0;
  while (place < programs.size() && !(programs[place].key == key)) ++place;
  return place;
}

Error not_registered(std::string_view what, u32 value) {
  return kCheck.wrong(what, std::to_string(value),
                      "the launches were prepared without that program; name it in Programs");
}

Status check_clusters(const Plan& plan) {
  if (plan.cluster_blocks == attend::cluster_blocks(plan.row_tile)) return {};
  return kCheck.wrong("cluster_blocks", std::to_string(plan.cluster_blocks),
                      "a row tile of " + std::to_string(plan.row_tile) + " takes clusters of " +
                          std::to_string(attend::cluster_blocks(plan.row_tile)) +
                          "; make the plan with constants_for()");
}

/// A plan of fewer requests or rows would leave outputs unwritten.
Status check_rows(const Call& call, const Plan& plan) {
  const u64 rows = u64{plan.row_tiles} * plan.row_tile;
  if (plan.grid.x != 0 && plan.items == call.batch * plan.row_tiles &&
      rows >= call.max_query * call.heads)
    return {};
  return kCheck.wrong(
      "plan", std::to_string(plan.items) + " items of " + std::to_string(rows) + " rows",
      "the call has " + std::to_string(call.batch) + " requests of up to " +
          std::to_string(call.max_query * call.heads) + " rows; make the plan of its problem()");
}

}  // namespace

// Here rather than in the class: inlined, GCC 12 takes an empty optional for an uninitialised one.
Launches::Launches() = default;
Launches::Launches(Launches&& other) noexcept
    : attend_(std::move(other.attend_)),
      reduce_(std::move(other.reduce_)),
      chosen_attend_(std::exchange(other.chosen_attend_, nullptr)),
      chosen_reduce_(std::exchange(other.chosen_reduce_, nullptr)),
      maps_(std::move(other.maps_)),
      plan_(other.plan_) {}
Launches& Launches::operator=(Launches&& other) noexcept {
  attend_ = std::move(other.attend_);
  reduce_ = std::move(other.reduce_);
  chosen_attend_ = std::exchange(other.chosen_attend_, nullptr);
  chosen_reduce_ = std::exchange(other.chosen_reduce_, nullptr);
  maps_ = std::move(other.maps_);
  plan_ = other.plan_;
  return *this;
}
Launches::~Launches() = default;

Status Launches::launch(CUstream stream) noexcept {
  if (chosen_attend_ == nullptr) return {};
  if (Status launched = chosen_attend_->launch(stream); !launched || chosen_reduce_ == nullptr)
    return launched;
  return chosen_reduce_->launch(stream);
}

Result<Attention> Attention::create(Runtime& runtime, const Programs& programs) {
  Attention made(runtime);
  for (const attend::Key& key : programs.attend) {
    KILN_TRY(attend::check_key(key));
    KILN_TRY(const KernelId id, runtime.add(attend::spec_of(key)));
    made.attend_.push_back({key, id});
  }
  for (const reduce::Key& key : programs.reduce) {
    KILN_TRY(reduce::check_key(key));
    KILN_TRY(const KernelId id, runtime.add(reduce::spec_of(key)));
    made.reduce_.push_back({key, id});
  }
  return made;
}

Result<Launches> Attention::prepare(const Arguments& arguments, const Plan& plan) const {
  Launches launches;
  for (int i = 0; i < 2; ++i) {
    KILN_TRY(auto builder, runtime_->tensor_map_builder());
    launches.maps_.push_back(std::move(builder));
  }
  for (const auto& program : attend_) {
    KILN_TRY(const Kernel kernel, runtime_->get(program.id));
    Plan any{.row_tile = program.key.row_tile,
             .cluster_blocks = attend::cluster_blocks(program.key.row_tile)};
    any.grid.x = any.cluster_blocks;
    KILN_TRY(
        LaunchDescriptor launch,
        runtime_->launches().prepare(kernel, attend_shape(any), TensorMap{}, TensorMap{}, Args{}));
    launches.attend_.push_back({program.key, std::move(launch)});
  }
  for (const auto& program : reduce_) {
    KILN_TRY(const Kernel kernel, runtime_->get(program.id));
    Plan any;
    any.reducer_grid.x = 1;
    KILN_TRY(LaunchDescriptor launch,
             runtime_->launches().prepare(kernel, reduce_shape(any), Args{}));
    launches.reduce_.push_back({program.key, std::move(launch)});
  }
  KILN_TRY(update(launches, arguments, plan));
  return launches;
}

Status Attention::update(Launches& launches, const Arguments& arguments, const Plan& plan) const {
  launches.launch_nothing();
  const auto call = check(arguments);
  if (!call) return call.status();
  launches.plan_ = plan;
  if (call->tokens == 0) return {};
  KILN_TRY(check_rows(*call, plan));
  KILN_TRY(check_workspace(*call, plan));
  KILN_TRY(check_clusters(plan));

  const std::size_t attend = place_of(launches.attend_, attend::key_of(plan));
  if (attend == launches.attend_.size()) return not_registered("row_tile", plan.row_tile);
  const bool joins = plan.reducer != Reducer::none;
  const std::size_t reduce = joins ? place_of(launches.reduce_, reduce::key_of(plan.reducer)) : 0;
  if (joins && reduce == launches.reduce_.size())
    return not_registered("row_warps", reduce::key_of(plan.reducer).row_warps);

  LaunchDescriptor& first = launches.attend_[attend].launch;
  KILN_TRY(check_device(*call, first.device()));

  const Args args = args_of(*call, plan);
  // Requests without any key bring no page, and an empty cache has no map.
  if (call->pages != 0) {
    const auto latent = launches.maps_[0].build(map_of(*call, 128, Swizzle::bytes_128));
    if (!latent) return latent.status();
    const auto rope = launches.maps_[1].build(map_of(*call, kRopeDim, Swizzle::bytes_64));
    if (!rope) return rope.status();
    KILN_TRY(first.set_argument(0, launches.maps_[0].map()));
    KILN_TRY(first.set_argument(1, launches.maps_[1].map()));
  }
  KILN_TRY(first.set_argument(2, args));
  KILN_TRY(first.set_grid(plan.grid));
  if (joins) {
    LaunchDescriptor& second = launches.reduce_[reduce].launch;
    KILN_TRY(second.set_argument(0, args));
    KILN_TRY(second.set_grid(plan.reducer_grid));
    launches.chosen_reduce_ = &second;
  }
  launches.chosen_attend_ = &first;
  return {};
}

std::vector<KernelId> Attention::kernels() const {
  std::vector<KernelId> ids;
  for (const auto& program : attend_) ids.push_back(program.id);
  for (const auto& program : reduce_) ids.push_back(program.id);
  return ids;
}

}  // namespace kiln::kernels::kimi_k3_mla
