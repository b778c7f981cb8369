// Streams and events. Work is done when it is enqueued, so nothing is ever waited for.
#include <iterator>

#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/kernel.hpp"
#include "tests/support/fake_driver/variants.hpp"

namespace fake_driver {
namespace {

bool in_progress(const std::shared_ptr<Capture>& capture) {
  const auto& all = state().captures;
  return capture != nullptr && std::find(all.begin(), all.end(), capture) != all.end();
}

CUresult create_stream(CUstream* stream, unsigned flags) {
  const std::lock_guard lock(state().mutex);
  if (stream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  *stream = state().streams.add(std::make_unique<CUstream_st>(CUstream_st{context, flags}));
  return CUDA_SUCCESS;
}

// A stream that may be waited for: not one that is captured, which this breaks.
CUresult check_waitable(CUstream handle) {
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, context, stream));
  if (const auto capture = capture_of(stream)) {
    capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return stream == nullptr ? may_enqueue(stream, context) : CUDA_SUCCESS;
}

CUresult check_event(CUevent event) {
  if (!state().events.holds(event)) return CUDA_ERROR_INVALID_HANDLE;
  return event->capture != nullptr ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
  const std::lock_guard lock(state().mutex);
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FAKE_DRIVER_TRY(check_event(start));
  FAKE_DRIVER_TRY(check_event(end));
  if (!start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = 0.001f * static_cast<float>(end->time - start->time);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult resolve_stream(CUstream handle, CUcontext context, CUstream& stream) {
  stream = nullptr;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return CUDA_SUCCESS;
  auto& all = state();
  if (handle == CU_STREAM_PER_THREAD) {
    auto& own = all.thread_streams[{&thread_state, context}];
    if (own == nullptr) own = all.streams.add(std::make_unique<CUstream_st>(CUstream_st{context}));
    stream = own;
    return CUDA_SUCCESS;
  }
  if (!all.streams.holds(handle) || handle->context != context) return CUDA_ERROR_INVALID_HANDLE;
  stream = handle;
  return CUDA_SUCCESS;
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  FAKE_DRIVER_ENTER(cuStreamCreate);
  return create_stream(stream, flags);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  FAKE_DRIVER_ENTER(cuStreamCreateWithPriority);
  return create_stream(stream, flags);
}

CUresult cuStreamDestroy(CUstream stream) {
  FAKE_DRIVER_ENTER(cuStreamDestroy);
  const std::lock_guard lock(state().mutex);
  if (!state().streams.holds(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto capture = capture_of(stream)) capture->broken = true;
  state().streams.remove(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_DRIVER_ENTER(cuStreamSynchronize);
  const std::lock_guard lock(state().mutex);
  return check_waitable(stream);
}

CUresult cuStreamQuery(CUstream stream) {
  FAKE_DRIVER_ENTER(cuStreamQuery);
  const std::lock_guard lock(state().mutex);
  return check_waitable(stream);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  FAKE_DRIVER_ENTER(cuStreamWaitEvent);
  const std::lock_guard lock(state().mutex);
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, context, stream));
  if (!state().events.holds(event)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_DRIVER_TRY(may_enqueue(stream, context));
  const auto own = capture_of(stream);
  if (!in_progress(event->capture)) {
    if (own == nullptr) return CUDA_SUCCESS;
    own->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (own != nullptr && own != event->capture) {
    own->broken = event->capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  stream->capture = event->capture;
  auto& last = stream->capture->last[stream];
  last.insert(last.end(), event->nodes.begin(), event->nodes.end());
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_DRIVER_ENTER(cuEventCreate);
  const std::lock_guard lock(state().mutex);
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  FAKE_DRIVER_TRY(current_context(context));
  *event = state().events.add(std::make_unique<CUevent_st>(CUevent_st{context}));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  FAKE_DRIVER_ENTER(cuEventDestroy);
  const std::lock_guard lock(state().mutex);
  return state().events.remove(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  FAKE_DRIVER_ENTER(cuEventRecord);
  const std::lock_guard lock(state().mutex);
  if (!state().events.holds(event)) return CUDA_ERROR_INVALID_HANDLE;
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, event->context, stream));
  FAKE_DRIVER_TRY(may_enqueue(stream, event->context));
  event->recorded = true;
  event->capture = capture_of(stream);
  event->nodes.clear();
  if (event->capture != nullptr) event->nodes = event->capture->last[stream];
  // The device's clock: a microsecond for each launch.
  event->time = total_calls(Function::cuLaunchKernelEx) + total_calls(Function::cuLaunchKernel) +
                total_calls(Function::cuGraphLaunch);
  return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
  if (flags != CU_EVENT_RECORD_EXTERNAL) return cuEventRecord(event, handle);
  FAKE_DRIVER_ENTER(cuEventRecordWithFlags);
  const std::lock_guard lock(state().mutex);
  if (!state().events.holds(event)) return CUDA_ERROR_INVALID_HANDLE;
  CUstream stream = nullptr;
  FAKE_DRIVER_TRY(resolve_stream(handle, event->context, stream));
  FAKE_DRIVER_TRY(may_enqueue(stream, event->context));
  const auto capture = capture_of(stream);
  if (capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The launch of the graph records it; a microsecond passes between two of them.
  append(*capture, stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->work = [event] {
    static std::uint64_t records = 0;
    if (!state().events.holds(event)) return;
    event->recorded = true;
    event->time = ++records;
  };
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  FAKE_DRIVER_ENTER(cuEventSynchronize);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(check_event(event));
  return may_block();
}

CUresult cuEventQuery(CUevent event) {
  FAKE_DRIVER_ENTER(cuEventQuery);
  const std::lock_guard lock(state().mutex);
  FAKE_DRIVER_TRY(check_event(event));
  return may_block();
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  FAKE_DRIVER_ENTER(cuEventElapsedTime);
  return elapsed(milliseconds, start, end);
}

CUresult fake_driver_event_elapsed_time_v1(float* milliseconds, CUevent start, CUevent end) {
  FAKE_DRIVER_ENTER(cuEventElapsedTime);
  return elapsed(milliseconds, start, end);
}

}  // extern "C"
