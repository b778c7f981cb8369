// Stream capture: its rules, and the calls that begin, end and describe it.
#include <algorithm>

#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/kernel.hpp"
#include "tests/support/fake_driver/user_object.hpp"
#include "tests/support/fake_driver/variants.hpp"

namespace fake_driver {
namespace {

void end(const std::shared_ptr<Capture>& capture) {
  auto& all = state();
  for (const auto& [stream, last] : capture->last)
    if (all.streams.holds(stream)) stream->capture.reset();
  all.captures.erase(std::find(all.captures.begin(), all.captures.end(), capture));
  if (all.captures.empty()) attention.fetch_and(~static_cast<unsigned>(kCapturing));
}

// Whether what comes after `origin`'s last nodes also comes after those of every other stream.
bool joined(const Capture& capture) {
  std::set<CUgraphNode> before;
  auto open = capture.last.at(capture.origin);
  while (!open.empty()) {
    auto* node = open.back();
    open.pop_back();
    if (before.insert(node).second) open.insert(open.end(), node->after.begin(), node->after.end());
  }
  for (const auto& [stream, last] : capture.last)
    for (auto* node : last)
      if (before.count(node) == 0) return false;
  return true;
}

// The capture that a question about `handle` is about. Asking the legacy stream beside a capture
// that it would wait for is itself an error, which breaks nothing.
CUresult find_capture(CUstream handle, CUstream& stream, std::shared_ptr<Capture>& capture) {
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  FAKE_DRIVER_TRY(resolve_stream(handle, context, stream));
  capture = capture_of(stream);
  if (stream != nullptr) return CUDA_SUCCESS;
  for (const auto& each : state().captures)
    for (const auto& [member, last] : each->last)
      if (member->context == context && (member->flags & CU_STREAM_NON_BLOCKING) == 0)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return CUDA_SUCCESS;
}

CUstreamCaptureStatus status_of(const Capture* capture) {
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  const std::lock_guard lock(state().mutex);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUstream stream = nullptr;
  std::shared_ptr<Capture> capture;
  FAKE_DRIVER_TRY(find_capture(handle, stream, capture));
  *status = status_of(capture.get());
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  const auto& last = capture->last[stream];
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = capture->graph;
  if (dependencies != nullptr) *dependencies = last.data();
  if (count != nullptr) *count = last.size();
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<Capture> capture_of(CUstream stream) {
  return stream != nullptr ? stream->capture : nullptr;
}

CUresult may_enqueue(CUstream stream, CUcontext context) {
  if (const auto capture = capture_of(stream))
    return capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (stream != nullptr) return CUDA_SUCCESS;
  auto result = CUDA_SUCCESS;
  for (const auto& capture : state().captures)
    for (const auto& [member, last] : capture->last)
      if (member->context == context && (member->flags & CU_STREAM_NON_BLOCKING) == 0) {
        capture->broken = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
  return result;
}

CUresult may_block() {
  const auto mode = this_thread().capture_mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  auto result = CUDA_SUCCESS;
  for (const auto& capture : state().captures) {
    const bool own = capture->thread == &thread_state;
    const bool forbids = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                             : mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                   capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbids) continue;
    capture->broken = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUgraphNode append(Capture& capture, CUstream stream, CUgraphNodeType type) {
  auto made = std::make_unique<CUgraphNode_st>();
  made->graph = capture.graph;
  made->type = type;
  auto& last = capture.last[stream];
  made->after = last;
  auto* node = state().nodes.add(std::move(made));
  capture.graph->nodes.push_back(node);
  last = {node};
  return node;
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FAKE_DRIVER_ENTER(cuThreadExchangeStreamCaptureMode);
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  FAKE_DRIVER_ENTER(cuStreamBeginCapture);
  const std::lock_guard lock(state().mutex);
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, context, stream));
  if (stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->graph = state().graphs.add(std::make_unique<CUgraph_st>());
  capture->mode = mode;
  capture->origin = stream;
  capture->id = state().next_id++;
  capture->thread = &thread_state;
  capture->last[stream];
  stream->capture = capture;
  state().captures.push_back(std::move(capture));
  attention.fetch_or(kCapturing);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  FAKE_DRIVER_ENTER(cuStreamEndCapture);
  Destructors destructors;
  const std::lock_guard lock(state().mutex);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, context, stream));
  const auto capture = capture_of(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_state)
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  auto result = CUDA_SUCCESS;
  if (capture->broken)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!joined(*capture))
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  end(capture);
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph;
    return result;
  }
  for (auto* node : capture->graph->nodes) state().nodes.remove(node);
  destructors.release(capture->graph->kept);
  state().graphs.remove(capture->graph);
  *graph = nullptr;
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  FAKE_DRIVER_ENTER(cuStreamIsCapturing);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // As short as a launch then.
  if ((attention.load(std::memory_order_relaxed) & (kRecording | kCapturing)) == 0) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(state().mutex);
  CUstream stream = nullptr;
  std::shared_ptr<Capture> capture;
  FAKE_DRIVER_TRY(find_capture(handle, stream, capture));
  *status = status_of(capture.get());
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                const CUgraphEdgeData** edges, size_t* count) {
  FAKE_DRIVER_ENTER(cuStreamGetCaptureInfo);
  if (edges != nullptr) *edges = nullptr;  // all of them plain
  return capture_info(stream, status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  FAKE_DRIVER_ENTER(cuStreamGetCaptureInfo);
  return capture_info(stream, status, id, graph, dependencies, count);
}

}  // extern "C"
