// A descriptor's launch as a node of a CUDA graph.
#include <string>

#include "kiln/launch.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/graph_keep.hpp"
#include "runtime/launch_checks.hpp"
#include "runtime/launch_slot.hpp"

namespace kiln {
namespace {

struct Capture {
  CUgraph graph = nullptr;
  const CUgraphNode* last = nullptr;  // what comes next into the stream depends on these
  std::size_t last_count = 0;
};

// The capture that `stream` is in.
Result<Capture> capture_of(const LoadedKernel& kernel, CUstream stream) {
  const auto& api = kernel.library().driver();
  Capture capture;
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  // Asked for only because the driver refuses to leave a programmatic edge out.
  const CUgraphEdgeData* edges = nullptr;
  const auto result =
      api.cuStreamGetCaptureInfo_v12030 != nullptr
          ? api.cuStreamGetCaptureInfo_v12030(stream, &state, nullptr, &capture.graph,
                                              &capture.last, &edges, &capture.last_count)
          : api.cuStreamGetCaptureInfo_v11030(stream, &state, nullptr, &capture.graph,
                                              &capture.last, &capture.last_count);
  if (result != CUDA_SUCCESS) return kernel.library().failed("cuStreamGetCaptureInfo", result);
  return capture;
}

}  // namespace

Status LaunchDescriptor::check_capture(CUstream stream) const noexcept {
  const Use use(*this);
  if (!use) return use.error();
  if (slot_->fork_generation != fork_generation()) return forked_error();
  const auto& api = slot_->kernel->library().driver();
  if (slot_->empty_grid)
    return launch_error(*slot_->kernel, ErrorCode::invalid_argument,
                        "the grid is empty, so there is nothing to capture");
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto result = api.cuStreamIsCapturing(stream, &state);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return launch_error(*slot_->kernel, ErrorCode::capture_active,
                        "the legacy default stream cannot be captured, and another stream of this "
                        "context is being; capture into that one");
  if (result != CUDA_SUCCESS) return slot_->kernel->library().failed("cuStreamIsCapturing", result);
  if (state != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return launch_error(*slot_->kernel, ErrorCode::invalid_argument,
                        state == CU_STREAM_CAPTURE_STATUS_NONE
                            ? "the stream is not capturing; begin a capture, or use launch()"
                            : "the stream's capture is spoiled; end it and begin another");
  return {};
}

Status LaunchDescriptor::keep_in_graph_of(CUstream stream) const noexcept {
  KILN_TRY(const auto capture, capture_of(*slot_->kernel, stream));
  return keep_in_graph(capture.graph, slot_->kernel);
}

Result<CapturedLaunch> LaunchDescriptor::capture(CUstream stream) noexcept {
  if (auto status = check_capture(stream); !status) return status.error();
  if (auto status = launch(stream); !status) return status.error();

  // What the stream depends on right after the launch is that launch and nothing else.
  KILN_TRY(const auto capture, capture_of(*slot_->kernel, stream));
  if (capture.last_count != 1)
    return launch_error(*slot_->kernel, ErrorCode::driver_failed,
                        "the stream depends on " + std::to_string(capture.last_count) +
                            " graph nodes right after the launch was captured; expected 1");
  return CapturedLaunch{capture.last[0], slot_->cluster, slot_->kernel->library().kernel()};
}

Status LaunchDescriptor::update(CUgraphExec graph, CapturedLaunch captured) noexcept {
  const Use use(*this);
  if (!use) return use.error();
  const auto& slot = *slot_;
  if (slot.fork_generation != fork_generation()) return forked_error();
  if (slot.kernel->library().kernel() != captured.kernel)
    return launch_error(*slot.kernel, ErrorCode::invalid_argument,
                        "the captured node is of another kernel, and the graph keeps that one and "
                        "not this; capture it again");
  if (slot.cluster != captured.cluster_blocks)
    return launch_error(
        *slot.kernel, ErrorCode::invalid_argument,
        "its cluster is " + text_of(slot.cluster) + " blocks and that of the captured node " +
            text_of(captured.cluster_blocks) + ", which cannot change; capture it again");
  if (slot.empty_grid)
    return launch_error(*slot.kernel, ErrorCode::invalid_argument,
                        "the grid is empty, which a graph node cannot be; disable it by "
                        "set_enabled(..., false)");
  CUDA_KERNEL_NODE_PARAMS node{};
  node.gridDimX = slot.config.gridDimX;
  node.gridDimY = slot.config.gridDimY;
  node.gridDimZ = slot.config.gridDimZ;
  node.blockDimX = slot.config.blockDimX;
  node.blockDimY = slot.config.blockDimY;
  node.blockDimZ = slot.config.blockDimZ;
  node.sharedMemBytes = slot.config.sharedMemBytes;
  node.kernelParams = slot.argument_table;
  node.kern = slot.kernel->library().kernel();
  const auto& api = slot.kernel->library().driver();
  const auto result = api.cuGraphExecKernelNodeSetParams(graph, captured.node, &node);
  if (result == CUDA_SUCCESS) return {};
  return slot.kernel->library().failed("cuGraphExecKernelNodeSetParams", result);
}

Status LaunchDescriptor::set_enabled(CUgraphExec graph, CapturedLaunch captured,
                                     bool enabled) noexcept {
  const Use use(*this);
  if (!use) return use.error();
  if (slot_->fork_generation != fork_generation()) return forked_error();
  const auto& api = slot_->kernel->library().driver();
  const auto result = api.cuGraphNodeSetEnabled(graph, captured.node, enabled ? 1 : 0);
  if (result == CUDA_SUCCESS) return {};
  return slot_->kernel->library().failed("cuGraphNodeSetEnabled", result);
}

}  // namespace kiln
