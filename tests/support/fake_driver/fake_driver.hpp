// A driver for tests on machines without a GPU: a library called libcuda.so.1 that checks what it
// is told as the driver would, records every launch, and fails where a test says so.
//
//   FakeDriver driver;
//   driver.fail("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
//   ...
//   driver.launches().front().argument<int>(2)
//
// The library is found through LD_LIBRARY_PATH. It knows nothing of Kiln.
// Threads: everything from any thread; scripts are set while no other thread calls the driver.
// Lifetime: one FakeDriver at a time. Making it and destroying it set everything back and
// invalidate all handles, so it outlives whatever holds some.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace fake_driver {

/// How a launch came to be recorded.
enum class Origin : unsigned { direct, captured, replayed };

/// What can be alive in the driver.
enum class Object : unsigned { library, context, stream, event, graph, graph_exec, allocation };

/// What cuTensorMapEncodeTiled writes here, and cuTensorMapReplaceAddress changes.
struct TensorMapFields {
  static constexpr std::uint64_t kMagic = 0x0070616d656b6166;  // "fakemap"
  std::uint64_t magic;
  std::uint64_t address;
  std::uint8_t type, rank, interleave, swizzle, l2_promotion, oob_fill;
  std::uint8_t element_strides[5];
  std::uint8_t zero[5];
  std::uint64_t strides[4];     ///< in bytes; zero beyond the rank
  std::uint32_t dims_minus[5];  ///< dimension - 1; zero beyond the rank
  std::uint16_t box[5];
  std::uint16_t more_zero;
  std::uint64_t zero_words[3];
  std::uint64_t digest;  ///< of everything above
};
static_assert(sizeof(TensorMapFields) == sizeof(CUtensorMap));

inline TensorMapFields decode(const CUtensorMap& map) {
  TensorMapFields fields;
  std::memcpy(&fields, &map, sizeof fields);
  return fields;
}

/// One launch, as the library shows it; the pointers hold during the visit.
struct LaunchView {
  const char* kernel;
  Origin origin;
  int device;
  CUcontext context;
  CUstream stream;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  const CUlaunchAttribute* attributes;
  std::size_t attribute_count;
  const unsigned char* parameters;  ///< all of them, as laid out for the kernel
  const std::size_t* offsets;       ///< of each parameter
  const std::size_t* sizes;
  std::size_t parameter_count;
  int loaded_module;    ///< this launch had to bring the code into its context first
  std::uint64_t order;  ///< counts the launches
};

/// The library's control functions. Those that take a function's name return 0 for an unknown one.
struct Control {
  void (*reset)();
  void (*set_driver_version)(int version);
  void (*set_device_count)(int count);
  void (*set_device_attribute)(int device, CUdevice_attribute attribute, int value);
  void (*set_loading_mode)(CUmoduleLoadingMode mode);
  void (*set_recording)(int on);
  int (*fail)(const char* function, CUresult result, std::uint64_t nth);
  int (*succeed)(const char* function);
  int (*hide)(const char* function);
  int (*set_latency)(const char* function, std::uint64_t nanoseconds);
  int (*calls)(const char* function, std::uint64_t* count);
  std::uint64_t (*calls_after_exit)();
  std::size_t (*live)(Object kind);
  void (*forget)();
  void (*visit_launches)(void (*visit)(void* user, const LaunchView* launch), void* user);
};

inline constexpr const char* kControlSymbol = "fake_driver_control";
using ControlFunction = const Control*();

/// A recorded launch.
struct Launch {
  std::string kernel;
  Origin origin = Origin::direct;
  int device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  std::array<unsigned, 3> grid{};
  std::array<unsigned, 3> block{};
  unsigned shared_bytes = 0;
  std::vector<CUlaunchAttribute> attributes;
  std::vector<std::vector<unsigned char>> arguments;
  bool loaded_module = false;
  std::uint64_t order = 0;

  /// Null where the launch has no such attribute.
  const CUlaunchAttributeValue* attribute(CUlaunchAttributeID id) const {
    for (const auto& each : attributes)
      if (each.id == id) return &each.value;
    return nullptr;
  }
  template <class T>
  T argument(std::size_t index) const {
    T value;
    if (index >= arguments.size() || arguments[index].size() != sizeof(T))
      die("a launch has no such argument of this size", kernel.c_str());
    std::memcpy(&value, arguments[index].data(), sizeof(T));
    return value;
  }

  [[noreturn]] static void die(const char* what, const char* subject) {
    std::fprintf(stderr, "fake driver: %s: %s\n", what, subject);
    std::abort();
  }
};

class FakeDriver {
 public:
  /// Ends the process where libcuda.so.1 is another one.
  FakeDriver() : library_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) Launch::die("not found; is LD_LIBRARY_PATH set?", ::dlerror());
    control_ = symbol<ControlFunction>(kControlSymbol)();
    control_->reset();
  }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;
  ~FakeDriver() { control_->reset(); }

  /// Such as 12080. What is newer than that is not there.
  void set_driver_version(int version) { control_->set_driver_version(version); }
  /// One H200 by default. Takes effect on what is asked from now on.
  void set_device_count(int count) { control_->set_device_count(count); }
  void set_device_attribute(int device, CUdevice_attribute attribute, int value) {
    control_->set_device_attribute(device, attribute, value);
  }
  void set_compute_capability(int device, int major, int minor) {
    set_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major);
    set_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
  }
  /// Lazy by default: code reaches a context when its function is asked for, or launched.
  void set_loading_mode(CUmoduleLoadingMode mode) { control_->set_loading_mode(mode); }
  /// Off: outside a capture a launch is counted and nothing else, not even checked.
  void set_recording(bool on) { control_->set_recording(on ? 1 : 0); }

  /// Every call of `function` fails from now on, or only the `nth`, counted from 1. A failed call
  /// does nothing. Several such scripts may be set; succeed() ends them.
  void fail(const char* function, CUresult result, std::uint64_t nth = 0) {
    known(control_->fail(function, result, nth), function);
  }
  void succeed(const char* function) { known(control_->succeed(function), function); }
  /// The driver has no such function from now on.
  void hide(const char* function) { known(control_->hide(function), function); }
  /// Each call keeps its thread busy for that long.
  void set_latency(const char* function, std::chrono::nanoseconds time) {
    known(control_->set_latency(function, static_cast<std::uint64_t>(time.count())), function);
  }

  /// Calls of all variants of a function, failed ones included.
  std::uint64_t calls(const char* function) const {
    std::uint64_t count = 0;
    known(control_->calls(function, &count), function);
    return count;
  }
  /// Calls that came when the process was exiting and the driver had gone.
  std::uint64_t calls_after_exit() const { return control_->calls_after_exit(); }
  std::size_t live(Object kind) const { return control_->live(kind); }
  /// Starts counts and recorded launches anew; keeps the scripts and all objects.
  void forget() { control_->forget(); }

  /// In the order of the calls.
  std::vector<Launch> launches() const {
    std::vector<Launch> launches;
    control_->visit_launches(&FakeDriver::collect, &launches);
    return launches;
  }

  /// A function of the library by its symbol: driver.symbol<decltype(cuCtxGetId)>("cuCtxGetId").
  template <class F>
  F* symbol(const char* name) const {
    auto* address = ::dlsym(library_, name);
    if (address == nullptr) Launch::die("libcuda.so.1 has no symbol", name);
    return reinterpret_cast<F*>(address);
  }

 private:
  static void known(int result, const char* function) {
    if (result == 0) Launch::die("there is no function", function);
  }
  static void collect(void* user, const LaunchView* view) {
    Launch launch;
    launch.kernel = view->kernel;
    launch.origin = view->origin;
    launch.device = view->device;
    launch.context = view->context;
    launch.stream = view->stream;
    std::copy(view->grid, view->grid + 3, launch.grid.begin());
    std::copy(view->block, view->block + 3, launch.block.begin());
    launch.shared_bytes = view->shared_bytes;
    launch.attributes.assign(view->attributes, view->attributes + view->attribute_count);
    for (std::size_t i = 0; i < view->parameter_count; ++i) {
      const auto* bytes = view->parameters + view->offsets[i];
      launch.arguments.emplace_back(bytes, bytes + view->sizes[i]);
    }
    launch.loaded_module = view->loaded_module != 0;
    launch.order = view->order;
    static_cast<std::vector<Launch>*>(user)->push_back(std::move(launch));
  }

  void* library_ = nullptr;
  const Control* control_ = nullptr;
};

}  // namespace fake_driver
