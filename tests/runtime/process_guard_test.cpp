// What NVRTC changes for the whole process is as it was when a compile has ended.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
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

// A signal for the process is for its own threads: one of Kiln's that took it would run the handler
// in place of the thread in sigwait(), or end a process that has none.
using SignalTest = FakeCompilerFixture;
std::atomic<int> taken_here{0};
TEST_F(SignalTest, KilnsThreadsTakeNoneThatIsForTheProcess) {
  struct sigaction count {};
  count.sa_handler = [](int) { ++taken_here; };
  ASSERT_EQ(::sigaction(SIGUSR1, &count, nullptr), 0);
  auto runtime = open(fake_options());
  const HeldCompile held(directory_ / "gate");
  for (const auto* name : {"a", "b", "c"}) add(runtime, name, "deaf until " + held.file());
  runtime.seal({.on_miss = OnMiss::build_later});
  for (std::uint32_t id = 0; id < 3; ++id)
    EXPECT_EQ(runtime.artifact({id}, kArch).error().code(), ErrorCode::not_ready);
  while (begun("a") + begun("b") + begun("c") == 0) std::this_thread::yield();

  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &one, &before), 0);
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const timespec longest{.tv_sec = 5, .tv_nsec = 0};
  EXPECT_EQ(::sigtimedwait(&one, nullptr, &longest), SIGUSR1);
  EXPECT_EQ(taken_here, 0);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGUSR1, SIG_DFL);
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
