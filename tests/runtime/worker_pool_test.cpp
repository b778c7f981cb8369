// Compile workers beside other children of the process, which somebody else waits for.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

class WorkerPoolTest : public FakeCompilerFixture {};

// A child of ours with that number, where it can be had.
pid_t child_with_number(pid_t number) {
  std::ofstream("/proc/sys/kernel/ns_last_pid") << number - 1;
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  return child;
}

// An engine that waits for all its children frees their numbers for others.
TEST_F(WorkerPoolTest, WhoGetsTheNumberOfAWorkerThatIsGoneIsLeftAlone) {
  auto options = worker_options();
  const auto pids = directory_ / "pids";
  options.worker_command = {
      "/bin/sh", "-c",
      "echo $$ >'" + pids.string() + "'; exec '" KILN_WORKER_PATH "' compile-worker"};
  auto runtime = open(options);
  ASSERT_TRUE(runtime.artifact(add(runtime, "first", ""), kArch));
  const auto worker = static_cast<pid_t>(std::stoi(read_file(pids)));
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  ASSERT_EQ(::waitpid(worker, nullptr, 0), worker);

  const pid_t other = child_with_number(worker);
  ASSERT_GT(other, 0);
  ASSERT_TRUE(runtime.artifact(add(runtime, "second", ""), kArch));
  EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0) << "it runs, and nobody else waits for it";
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  if (other != worker) GTEST_SKIP() << "no process can be given a number of choice here";
}

}  // namespace
}  // namespace kiln::test
