#include "tests/support/fake_driver/state.hpp"

#include <pthread.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "tests/support/fake_driver/device.hpp"

namespace fake_driver {

std::atomic<unsigned> attention{kNotInitialised | kRecording};
std::atomic<unsigned> epoch{1};
constinit thread_local ThreadState thread_state{};

namespace {

constexpr unsigned kLines = 256;
CallCounts lines[kLines];
std::atomic<unsigned> lines_claimed{0};
std::atomic<std::uint64_t> late_calls{0};

struct Failure {
  CUresult result = CUDA_SUCCESS;
  std::uint64_t nth = 0;
  std::uint64_t seen = 0;
};

struct Scripts {
  std::mutex mutex;
  std::array<std::vector<Failure>, kFunctions> failures;
  std::array<std::uint64_t, kFunctions> latency{};  // nanoseconds
  std::array<std::atomic<bool>, kFunctions> hidden{};
};

Scripts& scripts() {
  static auto* made = new Scripts;
  return *made;
}

CUresult scripted(Function function) {
  using Clock = std::chrono::steady_clock;
  auto& all = scripts();
  const auto index = static_cast<std::size_t>(function);
  auto result = CUDA_SUCCESS;
  std::chrono::nanoseconds latency{};
  {
    const std::lock_guard lock(all.mutex);
    latency = std::chrono::nanoseconds(all.latency[index]);
    for (auto& failure : all.failures[index]) {
      ++failure.seen;
      if (result == CUDA_SUCCESS && (failure.nth == 0 || failure.nth == failure.seen))
        result = failure.result;
    }
  }
  if (latency.count() > 0)
    for (const auto end = Clock::now() + latency; Clock::now() < end;) {
    }
  return result;
}

bool answers_without_driver(Function function) {
  return function == Function::cuGetErrorName || function == Function::cuGetErrorString ||
         function == Function::cuDriverGetVersion || function == Function::cuGetProcAddress;
}

void after_fork_in_child() {
  if ((attention.load() & kNotInitialised) == 0) attention.fetch_or(kForked);
}

const int watching_forks = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

State& state() {
  static auto* made = [] {
    auto* fresh = new State;
    fresh->devices.assign(1, default_device());
    return fresh;
  }();
  return *made;
}

void reset_state() {
  clear_scripts();
  clear_counts();
  auto& all = state();
  const std::lock_guard lock(all.mutex);
  epoch.fetch_add(1);
  attention.store((attention.load() & (kDeinitialised | kForked)) | kNotInitialised | kRecording);
  all.driver_version = 13000;
  all.loading_mode = CU_MODULE_LAZY_LOADING;
  all.devices.assign(1, default_device());
  all.launches.clear();
  all.captures.clear();
  all.thread_streams.clear();
  for (const auto& [address, allocation] : all.allocations)
    std::free(reinterpret_cast<void*>(address));
  all.allocations.clear();
  all.graph_execs.clear();
  all.user_objects.clear();
  all.nodes.clear();
  all.graphs.clear();
  all.events.clear();
  all.streams.clear();
  all.functions.clear();
  all.kernels.clear();
  all.libraries.clear();
  all.contexts.clear();
}

CallCounts* claim_counts() {
  return &lines[lines_claimed.fetch_add(1, std::memory_order_relaxed) % kLines];
}

std::uint64_t total_calls(Function function) {
  std::uint64_t total = 0;
  for (auto& line : lines)
    total += line.calls[static_cast<unsigned>(function)].load(std::memory_order_relaxed);
  return total;
}

void clear_counts() {
  late_calls.store(0);
  for (auto& line : lines)
    for (auto& calls : line.calls)
      // Most pages were never touched; leave them so.
      if (calls.load(std::memory_order_relaxed) != 0) calls.store(0, std::memory_order_relaxed);
}

CUresult stopped(Function function, unsigned why) {
  if ((why & kDeinitialised) != 0) {
    late_calls.fetch_add(1);
    return CUDA_ERROR_DEINITIALIZED;
  }
  const bool always = answers_without_driver(function);
  if ((why & kForked) != 0 && !always) return CUDA_ERROR_NOT_INITIALIZED;
  if ((why & kDestroying) != 0 && this_thread().destroys_user_object)
    return CUDA_ERROR_NOT_PERMITTED;
  if ((why & kNotInitialised) != 0 && !always && function != Function::cuInit)
    return CUDA_ERROR_NOT_INITIALIZED;
  return (why & kScripted) != 0 ? scripted(function) : CUDA_SUCCESS;
}

void script_failure(Function function, CUresult result, std::uint64_t nth) {
  const std::lock_guard lock(scripts().mutex);
  scripts().failures[static_cast<std::size_t>(function)].push_back({result, nth, 0});
  attention.fetch_or(kScripted);
}

void script_latency(Function function, std::uint64_t nanoseconds) {
  const std::lock_guard lock(scripts().mutex);
  scripts().latency[static_cast<std::size_t>(function)] = nanoseconds;
  attention.fetch_or(kScripted);
}

void end_failures(Function function) {
  const std::lock_guard lock(scripts().mutex);
  scripts().failures[static_cast<std::size_t>(function)].clear();
}

void hide(Function function) {
  scripts().hidden[static_cast<std::size_t>(function)].store(true);
}
bool hidden(Function function) {
  return scripts().hidden[static_cast<std::size_t>(function)].load();
}

void clear_scripts() {
  auto& all = scripts();
  const std::lock_guard lock(all.mutex);
  for (auto& failures : all.failures) failures.clear();
  all.latency.fill(0);
  for (auto& each : all.hidden) each.store(false);
  attention.fetch_and(~static_cast<unsigned>(kScripted));
}

std::uint64_t calls_after_exit() {
  return late_calls.load();
}

void note_initialised() {
  if ((attention.load() & kNotInitialised) == 0) return;
  // As the driver does: what goes after this finds it gone. Again after each reset, so that it
  // comes before what was registered before.
  std::atexit([] { attention.fetch_or(kDeinitialised); });
  attention.fetch_and(~static_cast<unsigned>(kNotInitialised));
}

}  // namespace fake_driver
