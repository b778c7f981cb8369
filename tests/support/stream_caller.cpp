// Built twice; see stream_caller.hpp. Includes nothing that holds functions of cuda.h by their
// names, which differ between the two builds.
#include "support/stream_caller.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

// The symbol's name after cuda.h has renamed it.
#define KILN_STRING_INNER(text) #text
#define KILN_STRING(text) KILN_STRING_INNER(text)
#define KILN_DRIVER(name) function<decltype(&::name)>(KILN_STRING(name))

namespace kiln::test {
namespace {

template <class Function>
Function function(const char* name) {
  auto* address = ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name);
  if (address == nullptr) {
    std::fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function>(address);
}

}  // namespace

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define KILN_CALLER per_thread_caller
constexpr bool kNullIsPerThread = true;
#else
#define KILN_CALLER plain_caller
constexpr bool kNullIsPerThread = false;
#endif

const StreamCaller KILN_CALLER = {
    .name = KILN_STRING(KILN_CALLER),
    .null_is_per_thread = kNullIsPerThread,
    .launch = [](LaunchDescriptor& launch, CUstream stream) { return launch.launch(stream); },
    .capture = [](LaunchDescriptor& launch, CUstream stream) { return launch.capture(stream); },
    .launch_kernel =
        [](CUfunction kernel, void** arguments, CUstream stream) {
          return KILN_DRIVER(cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments,
                                             nullptr);
        },
    .record = [](CUevent event,
                 CUstream stream) { return KILN_DRIVER(cuEventRecord)(event, stream); },
    .begin_capture =
        [](CUstream stream) {
          return KILN_DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        },
    .is_capturing =
        [](CUstream stream, CUstreamCaptureStatus* status) {
          return KILN_DRIVER(cuStreamIsCapturing)(stream, status);
        },
    .end_capture = [](CUstream stream,
                      CUgraph* graph) { return KILN_DRIVER(cuStreamEndCapture)(stream, graph); }};

}  // namespace kiln::test
