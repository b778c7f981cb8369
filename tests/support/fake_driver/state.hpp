// What the fake driver knows: its devices, the objects behind the handles, the scripts and records.
//
// Threads: State under its mutex, but for what is atomic; ThreadState belongs to its thread.
// Lifetime: State is made once and never destroyed, since calls come while the process exits.
// Objects that are destroyed stay in memory until a reset, so that no address is used twice.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tests/support/fake_driver/fake_driver.hpp"
#include "tests/support/fake_driver/functions.hpp"
#include "tests/support/fake_driver/image.hpp"

namespace fake_driver {

/// The objects of one kind.
template <class T>
class Table {
 public:
  T* add(std::unique_ptr<T> object) {
    auto* raw = object.get();
    alive_.insert(raw);
    objects_.push_back(std::move(object));
    return raw;
  }
  bool holds(const T* object) const { return alive_.count(const_cast<T*>(object)) > 0; }
  bool remove(T* object) { return alive_.erase(object) > 0; }
  template <class Which>
  void remove_if(Which which) {
    for (auto at = alive_.begin(); at != alive_.end();)
      at = which(**at) ? alive_.erase(at) : std::next(at);
  }
  std::size_t size() const { return alive_.size(); }
  const std::unordered_set<T*>& alive() const { return alive_; }
  void clear() {
    alive_.clear();
    objects_.clear();
  }

 private:
  std::unordered_set<T*> alive_;
  std::vector<std::unique_ptr<T>> objects_;
};

/// A kernel, where and with what it is launched.
struct KernelLaunch {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;  ///< as given; null when the kernel's handle was
  CUcontext context = nullptr;
  unsigned grid[3]{};
  unsigned block[3]{};
  unsigned shared_bytes = 0;
  std::vector<CUlaunchAttribute> attributes{};
  std::vector<unsigned char> parameters{};
};

/// A stream capture in progress.
struct Capture {
  CUgraph graph = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUstream origin = nullptr;
  std::uint64_t id = 0;
  const void* thread = nullptr;
  bool broken = false;
  /// The streams that take part, and the nodes that what comes next on each depends on.
  std::map<CUstream, std::vector<CUgraphNode>> last{};
};

}  // namespace fake_driver

// The handles of cuda.h point at these.
struct CUctx_st {
  CUdevice device = 0;
  bool primary = false;
  unsigned retained = 0;
  std::uint64_t id = 0;
};
struct CUlib_st {
  fake_driver::Image image{};
  std::vector<CUkernel> kernels{};
  std::set<CUcontext> loaded_in{};
};
struct CUkern_st {
  CUlibrary library = nullptr;
  const fake_driver::Code* code = nullptr;
  std::map<std::pair<CUdevice, CUfunction_attribute>, int> attributes{};  // those that were set
  std::map<CUcontext, CUfunction> functions{};
};
struct CUfunc_st {
  CUkernel kernel = nullptr;
  CUcontext context = nullptr;
  std::map<CUfunction_attribute, int> attributes{};  // those that were set
};
struct CUstream_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<fake_driver::Capture> capture{};
};
struct CUevent_st {
  CUcontext context = nullptr;
  bool recorded = false;
  std::uint64_t time = 0;
  std::shared_ptr<fake_driver::Capture> capture{};  // of the stream that it was recorded on
  std::vector<CUgraphNode> nodes{};
};
struct CUgraphNode_st {
  CUgraph graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  fake_driver::KernelLaunch launch{};   // of a kernel node
  std::vector<void*> parameter_list{};  // as the kernel node's parameters are shown
  std::function<void()> work{};         // of any other
  std::vector<CUgraphNode> after{};
};
struct CUuserObject_st {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  unsigned references = 0;
};
struct CUgraph_st {
  std::vector<CUgraphNode> nodes{};
  std::vector<CUuserObject> kept{};  // once for each reference
};
struct CUgraphExec_st {
  struct Step {
    CUgraphNode node = nullptr;
    bool enabled = true;
    fake_driver::KernelLaunch launch{};
    std::function<void()> work{};
  };
  std::vector<Step> steps{};
  std::vector<CUuserObject> kept{};
};

namespace fake_driver {

struct Device {
  std::map<CUdevice_attribute, int> attributes{};
  CUcontext primary = nullptr;
};

struct LaunchRecord {
  KernelLaunch launch{};
  std::string kernel{};  // libraries go, records stay
  std::vector<std::size_t> offsets{};
  std::vector<std::size_t> sizes{};
  Origin origin = Origin::direct;
  CUstream stream = nullptr;
  bool loaded_module = false;
};

struct State {
  std::mutex mutex;
  int driver_version = 13000;
  CUmoduleLoadingMode loading_mode = CU_MODULE_LAZY_LOADING;
  std::vector<Device> devices;
  std::vector<LaunchRecord> launches;
  std::uint64_t next_id = 1;  // of contexts and captures

  Table<CUctx_st> contexts;
  Table<CUlib_st> libraries;
  Table<CUkern_st> kernels;
  Table<CUfunc_st> functions;
  Table<CUstream_st> streams;
  Table<CUevent_st> events;
  Table<CUgraph_st> graphs;
  Table<CUgraphNode_st> nodes;
  Table<CUgraphExec_st> graph_execs;
  Table<CUuserObject_st> user_objects;
  std::map<std::pair<const void*, CUcontext>, CUstream> thread_streams;  // CU_STREAM_PER_THREAD
  std::vector<std::shared_ptr<Capture>> captures;                        // in progress
  struct Allocation {
    std::size_t bytes = 0;
    CUcontext context = nullptr;
    bool host = false;
  };
  std::map<std::uintptr_t, Allocation> allocations;
};

State& state();
/// Frees every object and sets everything back.
void reset_state();

// Why a call can't take the short way. Zero: nothing is to be done but counting.
enum Attention : unsigned {
  kNotInitialised = 1,
  kDeinitialised = 2,
  kForked = 4,
  kScripted = 8,
  kRecording = 16,
  kCapturing = 32,
  kDestroying = 64,  // a user object was destroyed, or is being
};
inline constexpr unsigned kStops =
    kNotInitialised | kDeinitialised | kForked | kScripted | kDestroying;
extern std::atomic<unsigned> attention;

/// Counts of calls, one line of them for each thread, so that threads do not slow each other down.
struct alignas(64) CallCounts {
  std::atomic<std::uint64_t> calls[kFunctions];
};

struct ThreadState {
  CallCounts* counts;
  unsigned epoch;  ///< the reset that this was made after
  unsigned depth;
  CUcontext contexts[8];
  CUstreamCaptureMode capture_mode;
  bool destroys_user_object;  ///< so it may not call the driver
};
// In the static block of the process, so that reaching it takes no call and no allocation.
extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));
extern std::atomic<unsigned> epoch;

CallCounts* claim_counts();
inline void count(Function function) {
  auto& thread = thread_state;
  if (thread.counts == nullptr) [[unlikely]]
    thread.counts = claim_counts();
  // Its own line: uncontended unless there are more threads than lines.
  thread.counts->calls[static_cast<unsigned>(function)].fetch_add(1, std::memory_order_relaxed);
}
std::uint64_t total_calls(Function function);
void clear_counts();

/// This thread's state, empty after a reset.
inline ThreadState& this_thread() {
  auto& thread = thread_state;
  if (const auto now = epoch.load(std::memory_order_relaxed); thread.epoch != now)
    thread = ThreadState{thread.counts, now, 0, {}, CU_STREAM_CAPTURE_MODE_GLOBAL, false};
  return thread;
}

/// What a call must answer before it does anything.
CUresult stopped(Function function, unsigned why);
inline CUresult enter(Function function) {
  count(function);
  const auto why = attention.load(std::memory_order_acquire);
  if ((why & kStops) == 0) [[likely]]
    return CUDA_SUCCESS;
  return stopped(function, why);
}

// The scripts of tests.
void script_failure(Function function, CUresult result, std::uint64_t nth);
void script_latency(Function function, std::uint64_t nanoseconds);
void end_failures(Function function);
void hide(Function function);
void clear_scripts();
bool hidden(Function function);
std::uint64_t calls_after_exit();
void note_initialised();

}  // namespace fake_driver

/// Opens the definition of a driver function. cuda.h has renamed `name` where it has to.
#define FAKE_DRIVER_ENTER(name)                                                                    \
  if (const auto stop = ::fake_driver::enter(::fake_driver::Function::name); stop != CUDA_SUCCESS) \
  return stop

#define FAKE_DRIVER_TRY(...) \
  if (const CUresult tried = (__VA_ARGS__); tried != CUDA_SUCCESS) return tried
