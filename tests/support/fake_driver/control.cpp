// The C interface that tests steer the library by.
#include <string_view>

#include "tests/support/fake_driver/device.hpp"
#include "tests/support/fake_driver/state.hpp"

namespace fake_driver {
namespace {

constexpr const char* kNames[] = {"cuGetProcAddress",
#define FAKE_DRIVER_FUNCTION(name, version) #name,
                                  FAKE_DRIVER_FUNCTIONS(FAKE_DRIVER_FUNCTION)
#undef FAKE_DRIVER_FUNCTION
};

// Calls `act` with the function of this name; 0 when there is none.
template <class Act>
int with(const char* name, Act act) {
  for (std::size_t i = 0; i < kFunctions; ++i)
    if (std::string_view(kNames[i]) == name) {
      act(static_cast<Function>(i));
      return 1;
    }
  return 0;
}

void set_driver_version(int version) {
  const std::lock_guard lock(state().mutex);
  state().driver_version = version;
}

void set_device_count(int count) {
  const std::lock_guard lock(state().mutex);
  state().devices.resize(static_cast<std::size_t>(count), default_device());
}

void set_device_attribute(int device, CUdevice_attribute attribute, int value) {
  const std::lock_guard lock(state().mutex);
  state().devices.at(static_cast<std::size_t>(device)).attributes[attribute] = value;
}

void set_loading_mode(CUmoduleLoadingMode mode) {
  const std::lock_guard lock(state().mutex);
  state().loading_mode = mode;
}

void set_recording(int on) {
  if (on != 0)
    attention.fetch_or(kRecording);
  else
    attention.fetch_and(~static_cast<unsigned>(kRecording));
}

int fail(const char* name, CUresult result, std::uint64_t nth) {
  return with(name, [&](Function function) { script_failure(function, result, nth); });
}
int succeed(const char* name) {
  return with(name, end_failures);
}
int hide_function(const char* name) {
  return with(name, hide);
}
int set_latency(const char* name, std::uint64_t nanoseconds) {
  return with(name, [&](Function function) { script_latency(function, nanoseconds); });
}
int calls(const char* name, std::uint64_t* total) {
  return with(name, [&](Function function) { *total = total_calls(function); });
}

std::size_t live(Object kind) {
  auto& all = state();
  const std::lock_guard lock(all.mutex);
  switch (kind) {
    case Object::library:
      return all.libraries.size();
    case Object::context:
      return all.contexts.size();
    case Object::stream:
      return all.streams.size() - all.thread_streams.size();
    case Object::event:
      return all.events.size();
    case Object::graph:
      return all.graphs.size();
    case Object::graph_exec:
      return all.graph_execs.size();
    case Object::allocation:
      return all.allocations.size();
  }
  return 0;
}

void forget() {
  clear_counts();
  const std::lock_guard lock(state().mutex);
  state().launches.clear();
}

void visit_launches(void (*visit)(void*, const LaunchView*), void* user) {
  const std::lock_guard lock(state().mutex);
  std::uint64_t order = 0;
  for (const auto& record : state().launches) {
    const auto& launch = record.launch;
    const LaunchView view{record.kernel.c_str(),
                          record.origin,
                          launch.context->device,
                          launch.context,
                          record.stream,
                          {launch.grid[0], launch.grid[1], launch.grid[2]},
                          {launch.block[0], launch.block[1], launch.block[2]},
                          launch.shared_bytes,
                          launch.attributes.data(),
                          launch.attributes.size(),
                          launch.parameters.data(),
                          record.offsets.data(),
                          record.sizes.data(),
                          record.offsets.size(),
                          record.loaded_module ? 1 : 0,
                          order++};
    visit(user, &view);
  }
}

constexpr Control kControl = {&reset_state,
                              &set_driver_version,
                              &set_device_count,
                              &set_device_attribute,
                              &set_loading_mode,
                              &set_recording,
                              &fail,
                              &succeed,
                              &hide_function,
                              &set_latency,
                              &calls,
                              &calls_after_exit,
                              &live,
                              &forget,
                              &visit_launches};

}  // namespace
}  // namespace fake_driver

extern "C" const fake_driver::Control* fake_driver_control() {
  return &fake_driver::kControl;
}
