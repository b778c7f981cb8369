// Compile workers beside other children of the process, which somebody else waits for.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "runtime/worker_messages.hpp"
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

// As where an engine is replaced while it runs: what the new one makes belongs under no key of the
// old one.
TEST_F(WorkerPoolTest, AWorkerOfAnotherKilnMakesNothingAndIsNamed) {
  WorkerJob job;
  job.program.closure.memory.push_back({"a.cu", std::make_shared<const std::string>("// a\n")});
  auto message = encode(job);
  EXPECT_FALSE(is_of_another_kiln(message));
  message[sizeof(std::uint64_t)] ^= 1;  // of the version
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const auto worker = start_child([&] {
    ::dup2(ends[1], STDIN_FILENO);
    ::execl(KILN_WORKER_PATH, KILN_WORKER_PATH, "compile-worker", nullptr);
    return 127;
  });
  ::close(ends[1]);
  const auto frame = framed(message);
  EXPECT_EQ(::write(ends[0], frame.data(), frame.size()), static_cast<::ssize_t>(frame.size()));
  char answer = 0;
  EXPECT_EQ(::read(ends[0], &answer, 1), 0);
  ::close(ends[0]);
  EXPECT_EQ(wait_for(worker), kOtherKilnExit);

  auto options = worker_options();
  options.worker_command = {"/bin/sh", "-c", "exit " + std::to_string(kOtherKilnExit)};
  auto runtime = open(options);
  EXPECT_NE(message_of(runtime.artifact(add(runtime, "a", ""), kArch)).find("another version"),
            std::string::npos);
  EXPECT_EQ(entries(), 0u);
}

}  // namespace
}  // namespace kiln::test
