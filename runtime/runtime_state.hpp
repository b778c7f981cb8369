// What a Runtime owns. Private to runtime.cpp and the files of the warmup.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/store.hpp"
#include "kiln/runtime.hpp"
#include "runtime/background_threads.hpp"
#include "runtime/compile_hints.hpp"
#include "runtime/compile_service.hpp"
#include "runtime/compiler.hpp"
#include "runtime/counters.hpp"
#include "runtime/driver_api.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/include_closure.hpp"
#include "runtime/late_builds.hpp"
#include "runtime/recorder.hpp"
#include "runtime/registry.hpp"
#include "runtime/seal.hpp"
#include "runtime/source_set.hpp"

namespace kiln {

class WarmupRun;

struct Runtime::State {
  State(RuntimeOptions given, std::optional<cache::Store> opened, NvrtcSearch search);

  /// Asked by every member of Runtime before it takes a lock.
  /// Errors  invalid_argument in a child that was forked in the middle of somebody's work here.
  Status usable() const;
  /// The driver, opened at the first call; a failure is tried again.
  Result<std::shared_ptr<const DriverApi>> driver();
  /// The same without a lock once it is open; null before.
  const DriverApi* open_driver() const noexcept {
    return driver_seen.load(std::memory_order_acquire);
  }
  Result<std::vector<DeviceInfo>> devices();

  /// Everything that NVRTC would read for `spec` now, from the root file for `architecture` on;
  /// without an architecture, from the spec's own.
  Result<Program> program(const KernelSpec& spec, std::string_view architecture = {});
  /// A request for a kernel on `architecture`; not to outlive this.
  /// Errors  invalid_argument for an unknown id; and all that artifact() gives before a look-up.
  Result<CompileRequest> request(KernelId id, std::string_view architecture);
  /// Brings a kernel that is found or compiled into the driver on `ordinal`, and for launch_ready
  /// into the context that is current there.
  Status load_now(KernelId id, int ordinal, Depth depth);
  /// The slow half of get(): finds or compiles, and loads.
  Result<Kernel> load(KernelId id, Registered& registered, int ordinal);
  /// What this process holds, or else, as far as the seal and the compile limit let it, what is
  /// found or compiled.
  Outcome obtain(KernelId id, const KernelSpec& spec, std::string_view architecture);
  /// Builds a kernel on another thread, for later requests; `spec` must outlive it. False when no
  /// thread can be made.
  bool start_late_build(KernelId id, const KernelSpec& spec,
                        const std::shared_ptr<CompileRequest>& wish, const Seal::Subject& subject);
  /// Notes what a warmup or a request has got.
  void note(KernelId id, const KernelSpec& spec, const CompileRequest& request,
            std::string_view architecture, const Outcome& outcome);

  RuntimeOptions options;
  /// For what may outlive this, as a kernel does that a graph keeps.
  const std::shared_ptr<const LogSink> log = std::make_shared<const LogSink>(options.log);
  SourceSet sources;
  FileMemo memo;
  std::optional<cache::Store> store;
  std::vector<IncludeRoot> roots;
  std::vector<std::string> skipped_toolkits;
  Counters counters;
  Compiler compiler;
  std::unique_ptr<WorkerPool> workers;  // null: compiles run in this process
  CompileHints hints;
  CompileService service;
  Registry registry;
  LaunchPool launches;

  Seal seal;
  LateBuilds late_builds;
  Recorder recorder;

  mutable ForkMutex warmup_mutex;
  std::shared_ptr<const WarmupRun> warmup;  // the last one

  ForkMutex driver_mutex;
  std::shared_ptr<const DriverApi> driver_owner;
  std::atomic<const DriverApi*> driver_seen{nullptr};
  /// Of the process that opened this Runtime, or its driver.
  std::atomic<unsigned> generation{fork_generation()};

  const unsigned opened_in = fork_generation();

  BackgroundThreads threads;  // the last member: they use all the others
};

}  // namespace kiln
