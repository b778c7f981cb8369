// What a fork leaves of CUDA, each time in a process that has not used it before. Trial T16; its
// part (c) needs no GPU and is in tests/issues.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "kiln/version.hpp"
#include "support/gpu_test.hpp"

namespace kiln::test {
namespace {

constexpr std::string_view kMarkSource = R"(
extern "C" __global__ void entry(unsigned* out, unsigned mark) { *out = mark; }
)";

// Exit codes of the processes below. What went wrong stands on standard error.
constexpr int kFailed = 1;
constexpr int kNoDevice = 77;  // or no NVML

int failed(const std::string& what, int code = kFailed) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return code;
}

// The whole way in this process, from starting CUDA on.
int launch_here(Runtime& runtime, KernelId id, unsigned mark) {
  const auto cuda = CudaDriver::open();
  if (!cuda) return failed(cuda.error().message(), kNoDevice);
  const auto kernel = runtime.get(id);
  if (!kernel) return failed(message_of(kernel));
  const auto out = cuda->buffer(sizeof mark);
  auto launch = runtime.launches().prepare(*kernel, {}, out.address(), mark);
  if (!launch) return failed(message_of(launch));
  if (const auto status = launch->launch(nullptr); !status) return failed(message_of(status));
  return out.download<unsigned>()[0] == mark ? 0 : failed("the kernel wrote something else");
}

// Not even initialised, so that there is no context of any device.
bool cuda_is_untouched() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return true;
  const auto current =
      reinterpret_cast<decltype(&::cuCtxGetCurrent)>(::dlsym(library, "cuCtxGetCurrent"));
  CUcontext context = nullptr;
  return current(&context) == CUDA_ERROR_NOT_INITIALIZED && context == nullptr;
}

int prepare_then_fork() {
  if (!cuda_is_untouched()) return failed("CUDA was in use before the test");
  const auto architectures = installed_architectures();
  if (!architectures) return failed(message_of(architectures), kNoDevice);
  if (version().empty() || driver_version().empty()) return failed("a version is missing");
  const TemporaryDirectory directory;
  auto runtime = Runtime::open({.cache_directory = directory.path() / "cache"});
  if (!runtime || !runtime->add_source("mark.cu", kMarkSource)) return failed("no Runtime");
  const auto id = runtime->add({.name = "mark", .source = "mark.cu"});
  if (!id) return failed(message_of(id));
  const auto before = runtime->look_up(*id, architectures->front());
  if (!before || before->found) return failed("the empty cache was not looked up");
  const auto report = runtime->warmup({.architectures = *architectures});
  if (!report || report->failed > 0 || report->compiled != architectures->size())
    return failed("the warmup did not compile");
  if (!cuda_is_untouched()) return failed("CUDA was initialised without a launch");

  for (unsigned child = 1; child <= 2; ++child)
    if (const int code = in_child([&] {
          ::alarm(60);
          const int launched = launch_here(*runtime, *id, child);
          if (launched != 0) return launched;
          // device() and installed_architectures() mean the same.
          const auto device = runtime->device();
          if (!device || std::find(architectures->begin(), architectures->end(),
                                   device->architecture) == architectures->end())
            return failed("CUDA and NVML see different devices");
          return runtime->counters().compiles == report->compiled ? 0 : failed("compiled again");
        });
        code != 0)
      return code;
  if (!cuda_is_untouched()) return failed("a child's CUDA is in its parent");
  return launch_here(*runtime, *id, 3);
}

int fork_after_use(bool launch_first) {
  const TemporaryDirectory directory;
  auto runtime = Runtime::open({.cache_directory = directory.path() / "cache"});
  if (!runtime || !runtime->add_source("mark.cu", kMarkSource)) return failed("no Runtime");
  const auto id = runtime->add({.name = "mark", .source = "mark.cu"});
  if (!id) return failed(message_of(id));
  const auto device = runtime->device();
  if (!device) return failed(message_of(device), kNoDevice);
  std::optional<CudaDriver> cuda;
  LaunchDescriptor launch;
  if (launch_first) {
    auto opened = CudaDriver::open();
    if (!opened) return failed(opened.error().message(), kNoDevice);
    cuda.emplace(*std::move(opened));
    if (const int code = launch_here(*runtime, *id, 1); code != 0) return code;
    auto prepared = runtime->launches().prepare(*runtime->get(*id), {}, CUdeviceptr{0}, 1u);
    if (!prepared) return failed(message_of(prepared));
    launch = *std::move(prepared);
  }
  const auto compiles = runtime->counters().compiles;
  const int code = in_child([&] {
    ::alarm(10);
    const auto is_told = [](const Error& error) {
      return error.code() == ErrorCode::no_device &&
             error.message().find("forked after CUDA was initialised") != std::string::npos;
    };
    if (launch_first)
      if (const auto status = launch.launch(nullptr); status || !is_told(status.error()))
        return failed("the launch is not refused");
    const auto kernel = runtime->get(*id, 0);
    if (kernel || !is_told(kernel.error())) return failed("get() is not refused");
    auto fresh = Runtime::open({.cache_directory = directory.path() / "cache"});
    const auto asked = fresh->device();
    if (asked || !is_told(asked.error()))
      return failed("a new Runtime is not refused: " + message_of(asked));
    // What needs no device goes on, with the cache as it was.
    const auto artifact = runtime->artifact(*id, device->architecture);
    if (!artifact) return failed(message_of(artifact));
    return !launch_first || runtime->counters().compiles == compiles ? 0 : failed("compiled again");
  });
  if (code != 0) return code;
  return launch_here(*runtime, *id, 2);  // the parent goes on
}

// In a process of its own, which runs the test up to here again, and so has not used CUDA.
#define KILN_EXPECT_IN_NEW_PROCESS(work)                                               \
  GTEST_FLAG_SET(death_test_style, "threadsafe");                                      \
  int code = -1;                                                                       \
  EXPECT_EXIT(std::exit(work), ([&](int status) {                                      \
                code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;                   \
                return code == 0 || code == kNoDevice;                                 \
              }),                                                                      \
              "");                                                                     \
  if (code == kNoDevice) {                                                             \
    KILN_REQUIRES_GPU();                                                               \
    FAIL() << "there is a GPU, but that process could not use it, or NVML not see it"; \
  }

TEST(ForkGpu, T16CudaIsLeftToTheForkedChildUntilADeviceIsAsked) {
  KILN_EXPECT_IN_NEW_PROCESS(prepare_then_fork());
}

TEST(ForkGpu, T16AForkAfterALaunchIsATypedErrorInTheChild) {
  KILN_EXPECT_IN_NEW_PROCESS(fork_after_use(/*launch_first=*/true));
}

TEST(ForkGpu, T16AForkAfterADeviceQueryIsATypedErrorInTheChild) {
  KILN_EXPECT_IN_NEW_PROCESS(fork_after_use(/*launch_first=*/false));
}

}  // namespace
}  // namespace kiln::test
