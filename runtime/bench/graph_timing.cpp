#include "runtime/bench/graph_timing.hpp"

#include <string_view>

#include "runtime/bench/statistics.hpp"

namespace kiln::bench {

Result<Stream> Stream::make(std::shared_ptr<const Context> context) {
  CUstream handle = nullptr;
  KILN_BENCH_CALL(context->driver, cuStreamCreate, &handle, CU_STREAM_DEFAULT);
  return Stream(std::move(context), handle);
}

Result<Event> Event::make(std::shared_ptr<const Context> context) {
  CUevent handle = nullptr;
  KILN_BENCH_CALL(context->driver, cuEventCreate, &handle, CU_EVENT_DEFAULT);
  return Event(std::move(context), handle);
}

Status Event::record(const Stream& stream) const {
  KILN_BENCH_CALL(context_->driver, cuEventRecord, handle_, stream.handle());
  return {};
}

Status Event::record_in_graph(const Stream& stream) const {
  KILN_BENCH_CALL(context_->driver, cuEventRecordWithFlags, handle_, stream.handle(),
                  CU_EVENT_RECORD_EXTERNAL);
  return {};
}

Result<double> Event::since(const Event& start) const {
  float milliseconds = 0;
  KILN_BENCH_CALL(context_->driver, cuEventElapsedTime, &milliseconds, start.handle_, handle_);
  return 1000.0 * static_cast<double>(milliseconds);
}

Result<GraphInstance> GraphInstance::capture(std::shared_ptr<const Context> context,
                                             const Stream& stream,
                                             const std::function<Status()>& work) {
  KILN_BENCH_CALL(context->driver, cuStreamBeginCapture, stream.handle(),
                  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  const auto worked = work();
  CUgraph graph = nullptr;
  const auto ended = context->driver->cuStreamEndCapture(stream.handle(), &graph);
  GraphInstance instance(std::move(context), graph);
  if (!worked) return worked.error();
  const auto& driver = instance.context_->driver;
  KILN_TRY(driver->check("cuStreamEndCapture", ended));
  KILN_BENCH_CALL(driver, cuGraphInstantiateWithFlags, &instance.handle_, graph, 0);
  return instance;
}

GraphInstance::~GraphInstance() {
  if (handle_ != nullptr) context_->driver->cuGraphExecDestroy(handle_);
  if (graph_ != nullptr) context_->driver->cuGraphDestroy(graph_);
}

namespace {

// The scratch memory holds zeros, so nothing is ever stored; the compiler does not know that.
constexpr std::string_view kReadSource = R"(
extern "C" __global__ void __launch_bounds__(256)
entry(ulonglong2* data, unsigned long long count) {
  unsigned long long sum = 0;
  const unsigned long long step = 256ull * gridDim.x;
  for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < count; i += step) {
    const ulonglong2 piece = data[i];
    sum |= piece.x | piece.y;
  }
  if (sum != 0) data[0].x = sum;
}
)";

}  // namespace

Result<L2Flush> L2Flush::make(const Device& device) {
  auto& runtime = *device.state()->runtime;
  const char* const name = "kiln_bench_read.cu";
  KILN_TRY(runtime.add_source(name, kReadSource));
  KILN_TRY(const auto id, runtime.add({.name = "kiln_bench_read", .source = name}));
  KILN_TRY(const auto kernel, runtime.get(id));
  KILN_TRY(const auto facts, runtime.device(device.state()->ordinal));
  const std::size_t bytes = (4 * device.l2_bytes() + 15) / 16 * 16;
  KILN_TRY(auto written, device.allocate(bytes));
  KILN_TRY(auto read, device.allocate(bytes));
  KILN_TRY(read.fill(std::byte{0}));
  KILN_TRY(auto launch, runtime.launches().prepare(
                            kernel, {.grid_blocks = {8 * facts.sm_count}, .block_threads = {256}},
                            read.data(), static_cast<unsigned long long>(bytes / 16)));
  L2Flush flush(std::move(written), std::move(read), std::move(launch));
  flush.context_ = device.state()->context;
  return flush;
}

Status L2Flush::enqueue(CUstream stream) {
  KILN_BENCH_CALL(context_->driver, cuMemsetD8Async,
                  reinterpret_cast<std::uintptr_t>(written_.data()), 0, written_.bytes(), stream);
  return launch_.launch(stream);
}

Result<TimedGraph> TimedGraph::make(const Device& device, const Stream& stream,
                                    const DeviceArm& arm, const DeviceTiming& timing,
                                    L2Flush* flush) {
  const auto& context = device.state()->context;
  // Whatever happens at a first launch only happens here, outside of a capture.
  if (flush != nullptr) KILN_TRY(flush->enqueue(stream.handle()));
  KILN_TRY(arm.enqueue(stream.handle()));
  KILN_TRY(stream.synchronize());

  std::vector<Event> events;
  for (unsigned i = 0; i < (flush != nullptr ? 2 * timing.calls : 2); ++i) {
    KILN_TRY(auto event, Event::make(context));
    events.push_back(std::move(event));
  }
  const auto call = [&](unsigned i) -> Status {
    if (flush == nullptr) return arm.enqueue(stream.handle());
    KILN_TRY(flush->enqueue(stream.handle()));
    KILN_TRY(events[2 * i].record_in_graph(stream));
    KILN_TRY(arm.enqueue(stream.handle()));
    return events[2 * i + 1].record_in_graph(stream);
  };
  KILN_TRY(auto graph, GraphInstance::capture(context, stream, [&]() -> Status {
             for (unsigned i = 0; i < timing.calls; ++i) KILN_TRY(call(i));
             return {};
           }));
  return TimedGraph(std::move(graph), std::move(events), timing);
}

Result<double> TimedGraph::sample(const Stream& stream) const {
  KILN_TRY(launch(stream));
  std::vector<double> times;
  if (timing_.l2 == L2::warm) {
    KILN_TRY(events_[0].record(stream));
    for (unsigned i = 0; i < timing_.replays; ++i) KILN_TRY(launch(stream));
    KILN_TRY(events_[1].record(stream));
  }
  KILN_TRY(stream.synchronize());
  for (std::size_t i = 0; i < events_.size(); i += 2) {
    KILN_TRY(const double time, events_[i + 1].since(events_[i]));
    times.push_back(time);
  }
  return timing_.l2 == L2::warm ? times.front() / timing_.calls / timing_.replays
                                : median_of(times);
}

}  // namespace kiln::bench
