// Streams, events and graphs of the harness as owners, and the two ways to time a graph of calls.
//
// Threads: one at a time. Lifetime: each keeps the context.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kiln/bench/device.hpp"
#include "runtime/bench/device_state.hpp"

namespace kiln::bench {

class Stream {
 public:
  /// Waits for the legacy default stream, so that copies and fills are in order with it.
  static Result<Stream> make(std::shared_ptr<const Context> context);
  Stream(Stream&& other) noexcept
      : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (handle_ != nullptr) context_->driver->cuStreamDestroy(handle_);
  }
  CUstream handle() const noexcept { return handle_; }
  Status synchronize() const {
    return context_->driver->check("cuStreamSynchronize",
                                   context_->driver->cuStreamSynchronize(handle_));
  }

 private:
  Stream(std::shared_ptr<const Context> context, CUstream handle)
      : context_(std::move(context)), handle_(handle) {}
  std::shared_ptr<const Context> context_;
  CUstream handle_;
};

class Event {
 public:
  static Result<Event> make(std::shared_ptr<const Context> context);
  Event(Event&& other) noexcept
      : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (handle_ != nullptr) context_->driver->cuEventDestroy(handle_);
  }
  CUevent handle() const noexcept { return handle_; }
  Status record(const Stream& stream) const;
  /// As a node of the graph that `stream` captures.
  Status record_in_graph(const Stream& stream) const;
  /// Microseconds between two events that have happened.
  Result<double> since(const Event& start) const;

 private:
  Event(std::shared_ptr<const Context> context, CUevent handle)
      : context_(std::move(context)), handle_(handle) {}
  std::shared_ptr<const Context> context_;
  CUevent handle_;
};

/// An instance of a captured graph.
class GraphInstance {
 public:
  /// Of what `work` enqueues on `stream`.
  static Result<GraphInstance> capture(std::shared_ptr<const Context> context, const Stream& stream,
                                       const std::function<Status()>& work);
  GraphInstance(GraphInstance&& other) noexcept
      : context_(std::move(other.context_)),
        graph_(std::exchange(other.graph_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)) {}
  GraphInstance& operator=(GraphInstance&&) = delete;
  ~GraphInstance();
  Status launch(const Stream& stream) const {
    return context_->driver->check("cuGraphLaunch",
                                   context_->driver->cuGraphLaunch(handle_, stream.handle()));
  }

 private:
  GraphInstance(std::shared_ptr<const Context> context, CUgraph graph)
      : context_(std::move(context)), graph_(graph) {}
  std::shared_ptr<const Context> context_;
  CUgraph graph_;
  CUgraphExec handle_ = nullptr;
};

/// Enqueues what leaves the L2 cache without the data of any call and without lines to write back.
class L2Flush {
 public:
  static Result<L2Flush> make(const Device& device);
  Status enqueue(CUstream stream);

 private:
  L2Flush(Buffer written, Buffer read, LaunchDescriptor launch)
      : written_(std::move(written)), read_(std::move(read)), launch_(std::move(launch)) {}
  std::shared_ptr<const Context> context_;
  Buffer written_;
  Buffer read_;
  LaunchDescriptor launch_;
};

/// The calls of one arm as a graph that can be timed.
class TimedGraph {
 public:
  /// `flush`: for a cold cache, and must outlive this; null: a warm one.
  static Result<TimedGraph> make(const Device& device, const Stream& stream, const DeviceArm& arm,
                                 const DeviceTiming& timing, L2Flush* flush);
  /// Microseconds of one call, as device.hpp says for each cache state.
  Result<double> sample(const Stream& stream) const;
  Status launch(const Stream& stream) const { return graph_.launch(stream); }

 private:
  TimedGraph(GraphInstance graph, std::vector<Event> events, const DeviceTiming& timing)
      : graph_(std::move(graph)), events_(std::move(events)), timing_(timing) {}
  GraphInstance graph_;
  std::vector<Event> events_;  ///< warm: start and end; cold: those of each call
  DeviceTiming timing_;
};

}  // namespace kiln::bench
