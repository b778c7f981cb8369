#include "kiln/launch.hpp"

#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/fork_generation.hpp"
#include "runtime/launch_attributes.hpp"
#include "runtime/launch_checks.hpp"
#include "runtime/launch_pool.hpp"
#include "runtime/launch_slot.hpp"
#include "runtime/message_text.hpp"

namespace kiln {
namespace {

void set_grid_of(CUlaunchConfig& config, const Extent& grid) {
  config.gridDimX = grid.x;
  config.gridDimY = grid.y;
  config.gridDimZ = grid.z;
}

Extent grid_of(const CUlaunchConfig& config) {
  return {config.gridDimX, config.gridDimY, config.gridDimZ};
}

// No launch into the legacy default stream can be.
bool may_be_captured(CUstream stream) {
  return stream != nullptr && stream != CU_STREAM_LEGACY;
}

// At the offsets of the parameter table, and the table of pointers to them that the driver wants.
void store_arguments(LaunchDescriptor::Slot& slot, std::span<const KernelParameter> parameters,
                     std::span<const Argument> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto* place = slot.arguments + parameters[i].offset;
    slot.argument_table[i] = place;
    std::memcpy(place, arguments[i].data, arguments[i].bytes);
  }
}

}  // namespace

Result<LaunchDescriptor> LaunchPool::prepare(const Kernel& kernel, const LaunchShape& shape,
                                             std::span<const Argument> arguments) {
  if (!kernel)
    return Error(ErrorCode::invalid_argument,
                 "launch of an empty Kernel: get one from Runtime::get first");
  const auto& loaded = *kernel.loaded_;
  const auto& library = loaded.library();
  if (library.generation() != fork_generation()) return forked_error();
  if (auto status = check_current_device(loaded); !status) return status.error();
  if (auto status = check_shape(loaded, shape); !status) return status.error();
  if (auto status = check_arguments(loaded, arguments); !status) return status.error();
  // With lazy loading the first launch in a context would do it, which may be captured.
  if (auto status = loaded.be_in_context(); !status) return status.error();

  const std::span parameters(library.parameters());
  const auto bytes = std::size_t{library.artifact().facts.parameter_bytes};
  auto* slot = state_->acquire(bytes, parameters.size());
  if (slot == nullptr) {
    if (library.driver().capture_is_visible())
      return launch_error(loaded, ErrorCode::capture_active,
                          "all descriptors of the pool for its " + std::to_string(bytes) +
                              " bytes of arguments are in use, and a stream of the context is "
                              "being captured: call LaunchPool::reserve() before the capture");
    slot = state_->grow_and_acquire(bytes, parameters.size());
  }
  if (slot == nullptr)
    return launch_error(loaded, ErrorCode::invalid_argument,
                        "there is no memory for another descriptor");
  LaunchDescriptor descriptor(slot, state_);
  slot->kernel = kernel.loaded_;
  slot->launch = library.driver().cuLaunchKernelEx;
  slot->is_capturing = library.driver().cuStreamIsCapturing;
  slot->function = reinterpret_cast<CUfunction>(library.kernel());
  slot->fork_generation = library.generation();
  std::memset(slot->arguments, 0, bytes);  // the gaps, so that equal arguments are equal bytes
  store_arguments(*slot, parameters, arguments);
  slot->packed_bytes = bytes;
  slot->packed_arguments = {CU_LAUNCH_PARAM_BUFFER_POINTER, slot->arguments,
                            CU_LAUNCH_PARAM_BUFFER_SIZE, &slot->packed_bytes, CU_LAUNCH_PARAM_END};
  slot->packed = bytes > 0 ? slot->packed_arguments.data() : nullptr;

  auto& config = slot->config;
  config = {};
  config.blockDimX = shape.block_threads.x;
  config.blockDimY = shape.block_threads.y;
  config.blockDimZ = shape.block_threads.z;
  config.sharedMemBytes = shape.shared_bytes;
  config.attrs = slot->attributes.data();
  KILN_TRY(config.numAttrs, write_attributes(loaded, shape, slot->attributes));
  KILN_TRY(slot->cluster, cluster_of(loaded, shape.cluster_blocks));
  slot->cluster_attribute = shape.cluster_blocks != Extent{} ? &slot->attributes.front() : nullptr;
  slot->preferred_cluster = shape.preferred_cluster_blocks;
  // The occupancy queries want a grid that the cluster divides; which one does not matter to them.
  set_grid_of(config,
              volume_of(slot->preferred_cluster) > 1 ? slot->preferred_cluster : slot->cluster);
  slot->cooperative = shape.cooperative;
  if (auto status = descriptor.fit_to_device(); !status) return status.error();
  if (auto status = descriptor.store_grid(shape.grid_blocks); !status) return status.error();
  return descriptor;
}

LaunchDescriptor::LaunchDescriptor(Slot* slot, std::shared_ptr<void> pool) noexcept
    : slot_(slot), lease_(slot->lease.load(std::memory_order_relaxed)), pool_(std::move(pool)) {}

LaunchDescriptor::LaunchDescriptor(LaunchDescriptor&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)),
      lease_(other.lease_),
      pool_(std::move(other.pool_)) {}

LaunchDescriptor& LaunchDescriptor::operator=(LaunchDescriptor&& other) noexcept {
  LaunchDescriptor taken(std::move(other));  // which is empty then; takes away what was here
  std::swap(slot_, taken.slot_);
  std::swap(lease_, taken.lease_);
  std::swap(pool_, taken.pool_);
  return *this;
}

LaunchDescriptor::~LaunchDescriptor() {
  if (slot_ != nullptr) static_cast<LaunchPool::State*>(pool_.get())->release(slot_);
}

Status LaunchDescriptor::launch(CUstream stream) noexcept {
  const Use use(*this);
  if (!use) return use.error();
  auto& slot = *slot_;
  if (slot.fork_generation != fork_generation()) [[unlikely]]
    return forked_error();
  if (slot.empty_grid) [[unlikely]]
    return {};
  // What is captured may outlive everything of ours that knows the kernel.
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  if (may_be_captured(stream) && slot.is_capturing(stream, &state) == CUDA_SUCCESS &&
      state == CU_STREAM_CAPTURE_STATUS_ACTIVE) [[unlikely]]
    if (auto status = keep_in_graph_of(stream); !status) return status;
  slot.config.hStream = stream;
  const auto result = slot.launch(&slot.config, slot.function, nullptr, slot.packed);
  if (result == CUDA_SUCCESS) [[likely]]
    return {};
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return launch_error(
        *slot.kernel, ErrorCode::capture_active,
        "the legacy default stream would join a capture that another stream of this "
        "context is in; launch into that stream, or after the capture");
  return slot.kernel->library().failed("cuLaunchKernelEx", result);
}

Status LaunchDescriptor::set_argument_bytes(std::size_t index, const void* data,
                                            std::size_t bytes) noexcept {
  const Use use(*this);
  if (!use) return use.error();
  const auto& parameters = slot_->kernel->library().parameters();
  if (index >= parameters.size())
    return launch_error(*slot_->kernel, ErrorCode::invalid_argument,
                        "there is no argument " + std::to_string(index) + "; the kernel has " +
                            std::to_string(parameters.size()));
  if (bytes != parameters[index].bytes)
    return launch_error(*slot_->kernel, ErrorCode::invalid_argument,
                        "argument " + std::to_string(index) + " has " +
                            counted(parameters[index].bytes, "byte") + ", not " +
                            std::to_string(bytes));
  if (data == nullptr)
    return launch_error(*slot_->kernel, ErrorCode::invalid_argument,
                        "argument " + std::to_string(index) + " is at a null pointer");
  std::memcpy(slot_->argument_table[index], data, bytes);
  return {};
}

// What depends on the cluster and on how many blocks the device has room for now.
Status LaunchDescriptor::fit_to_device() noexcept {
  auto& slot = *slot_;
  slot.most_resident_blocks = UINT64_MAX;
  if (volume_of(slot.cluster) > 1)
    if (auto status = check_cluster_fits(*slot.kernel, slot.cluster, slot.config); !status)
      return status;
  if (!slot.cooperative) return {};
  KILN_TRY(slot.most_resident_blocks,
           most_resident_blocks(*slot.kernel, slot.cluster, slot.config));
  return {};
}

Status LaunchDescriptor::store_grid(const Extent& grid) noexcept {
  auto& slot = *slot_;
  const bool empty = volume_of(grid) == 0;
  if (!empty) {
    const auto& multiple =
        volume_of(slot.preferred_cluster) > 1 ? slot.preferred_cluster : slot.cluster;
    if (auto status = check_grid(*slot.kernel, grid, multiple, slot.most_resident_blocks); !status)
      return status;
    set_grid_of(slot.config, grid);
  }
  slot.empty_grid = empty;
  return {};
}

Status LaunchDescriptor::set_grid(Extent grid_blocks) noexcept {
  const Use use(*this);
  if (!use) return use.error();
  return store_grid(grid_blocks);
}

Status LaunchDescriptor::set_cluster(Extent cluster_blocks) noexcept {
  const Use use(*this);
  if (!use) return use.error();
  return store_cluster(cluster_blocks, slot_->empty_grid ? Extent{0} : grid_of(slot_->config));
}

Status LaunchDescriptor::set_grid_and_cluster(Extent grid_blocks, Extent cluster_blocks) noexcept {
  const Use use(*this);
  if (!use) return use.error();
  if (cluster_blocks == slot_->cluster) return store_grid(grid_blocks);
  return store_cluster(cluster_blocks, grid_blocks);
}

Status LaunchDescriptor::store_cluster(const Extent& cluster_blocks, const Extent& grid) noexcept {
  auto& slot = *slot_;
  if (slot.fork_generation != fork_generation()) return forked_error();
  if (slot.cluster_attribute == nullptr)
    return launch_error(*slot.kernel, ErrorCode::invalid_argument,
                        "this launch was prepared without a cluster, so it has none to change; "
                        "prepare it with LaunchShape::cluster_blocks");
  if (volume_of(slot.preferred_cluster) > 1)
    return launch_error(*slot.kernel, ErrorCode::invalid_argument,
                        "this launch has a preferred cluster, which goes with its cluster; prepare "
                        "another one");
  if (auto status = check_current_device(*slot.kernel); !status) return status;
  KILN_TRY(const auto cluster, cluster_of(*slot.kernel, cluster_blocks));
  const auto old = std::tuple(slot.cluster, slot.config, slot.most_resident_blocks);
  const auto put = [&](const Extent& value) {
    slot.cluster = value;
    slot.cluster_attribute->value.clusterDim = {value.x, value.y, value.z};
  };
  put(cluster);
  set_grid_of(slot.config, cluster);
  auto status = fit_to_device();
  if (status) status = store_grid(grid);
  if (!status) {
    put(std::get<0>(old));
    slot.config = std::get<1>(old);
    slot.most_resident_blocks = std::get<2>(old);
  }
  return status;
}

int LaunchDescriptor::device() const noexcept {
  return slot_->kernel->ordinal();
}

std::span<const std::byte> LaunchDescriptor::packed_arguments() const noexcept {
  if (slot_ == nullptr) return {};
  return {slot_->arguments, slot_->kernel->library().artifact().facts.parameter_bytes};
}

}  // namespace kiln
