// What NVRTC changes for the whole process is as it was when a compile has ended.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "support/fake_compiler.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

using ProcessGuardTest = RuntimeFixture;

void own_handler(int, siginfo_t*, void*) {}

bool is_own(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
         now.sa_sigaction == own_handler;
}

rlim_t stack_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_STACK, &limit);
  return limit.rlim_cur;
}

// In a process in which NVRTC has not compiled yet, as each test has when ctest runs it.
TEST_F(ProcessGuardTest, ACompileLeavesSignalHandlersAndTheStackLimitAlone) {
  struct sigaction own {};
  own.sa_sigaction = own_handler;
  own.sa_flags = SA_SIGINFO;
  for (const int number : {SIGINT, SIGTERM}) ASSERT_EQ(::sigaction(number, &own, nullptr), 0);
  const auto limit = stack_limit();

  auto runtime = open();
  ASSERT_TRUE(compile(runtime, "extern \"C\" __global__ void entry() {}\n"));
  EXPECT_TRUE(is_own(SIGINT) && is_own(SIGTERM));

  std::atomic<bool> done{false}, taken{false};
  std::thread watcher([&] {
    while (!done) {
      if (!is_own(SIGINT) || !is_own(SIGTERM)) taken = true;
      std::this_thread::yield();
    }
  });
  EXPECT_FALSE(compile("#error no kernel\n"));
  done = true;
  watcher.join();
  EXPECT_FALSE(taken) << "from the second compile on, a signal must reach the process's handler";
  EXPECT_EQ(stack_limit(), limit);
  for (const int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);
}

// exit() takes NVRTC's data away before it comes to a Runtime that was made before NVRTC was
// loaded.
TEST_F(ProcessGuardTest, AProcessMayExitWhileAStaticRuntimeCompiles) {
  const int code = in_child([&] {
    ::alarm(60);
    static auto runtime = open();
    if (!compile(runtime, "extern \"C\" __global__ void entry() {}\n")) return 2;
    if (!runtime.add_source("heavy.cu",
                            "extern \"C\" __global__ void entry(float* x) {\n  float a = x[0];\n"
                            "#pragma unroll\n"
                            "  for (int i = 0; i < 8000; ++i) a = a * x[i] + x[i + 7];\n"
                            "  *x = a;\n}\n"))
      return 3;
    if (!runtime.add({.name = "heavy", .source = "heavy.cu"})) return 4;
    const auto report =
        runtime.warmup({.architectures = {"sm_90a"}, .progress = [](const Progress& progress) {
                          if (!progress.compiling.empty()) ::exit(0);
                        }});
    return 5;
  });
  EXPECT_EQ(code, 0);
}

// What NVRTC does at its first compile it does once, however many Runtimes a process has.
using FirstCompileTest = FakeCompilerFixture;
TEST_F(FirstCompileTest, IsThatOfTheProcessAndNotOfEachRuntime) {
  const auto compiles_of_nothing = [&](const std::string& name) {
    auto runtime = open(fake_options());
    EXPECT_TRUE(runtime.artifact(add(runtime, name, ""), kArch));
    EXPECT_EQ(begun(name), 1u);
    const auto log = read_file(log_);
    std::size_t found = 0;
    for (auto at = log.find("nothing"); at != log.npos; at = log.find("nothing", at + 1)) ++found;
    return found;
  };
  const auto first = compiles_of_nothing("a");
  EXPECT_LE(first, 1u);  // another test of this process may have had it
  EXPECT_EQ(compiles_of_nothing("b"), first);
}

}  // namespace
}  // namespace kiln::test
