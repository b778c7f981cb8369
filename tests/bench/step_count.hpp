// Counts what a piece of work does, exactly: in a child of this process that is traced.
//
// Threads: one; the child has none of the others.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

namespace kiln::bench {

enum class Step : unsigned char { system_call, instruction };

/// How many of them `work` makes in user mode; empty where no process may be traced. The signals
/// that mark its start and end add a few, the same each time.
inline std::optional<double> count_steps(Step step, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    work();
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  double halts = 0;
  bool complete = false;
  ::waitpid(child, &status, 0);
  while (WIFSTOPPED(status)) {
    if (::ptrace(step == Step::instruction ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, child, nullptr,
                 nullptr) != 0)
      break;
    ::waitpid(child, &status, 0);
    complete = WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
    if (complete) break;
    ++halts;
  }
  ::kill(child, SIGKILL);
  while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) continue;
  if (!complete) return std::nullopt;
  return step == Step::instruction ? halts : halts / 2;  // one halt before each call, one after
}

}  // namespace kiln::bench
