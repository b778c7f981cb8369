// Compiles in processes of their own: one that crashes, hangs or is killed for its memory costs one
// compile, which ends in an error that names the kernel and the signal.
//
// Threads: any member from any thread; each compile in flight has a process to itself.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/artifact.hpp"
#include "kiln/error.hpp"
#include "runtime/compiler.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/program.hpp"

namespace kiln {

class WorkerPool {
 public:
  /// `command` starts a process that calls serve_compiles().
  explicit WorkerPool(std::vector<std::string> command) : command_(std::move(command)) {}

  /// As Compiler::compile(), by the NVRTC in the file `nvrtc`.
  /// Errors  those, and compile_failed with `watch.passing` when the process ended or could not be
  ///         started. A compile that `watch` stops is over at once: its process is killed.
  Result<Artifact> compile(const Program& program, std::string_view architecture,
                           const CompileKey& key, const ToolchainId& toolchain,
                           const std::string& nvrtc, CompileWatch& watch);

  /// Whether any process has compiled.
  bool used() const noexcept { return used_.load(std::memory_order_relaxed); }
  /// Ends the processes that have nothing to do.
  void end_idle();

 private:
  class Process;

  /// Null: there is none.
  std::shared_ptr<Process> take_idle();

  std::vector<std::string> command_;
  std::atomic<bool> used_{false};
  ForkMutex mutex_;
  std::vector<std::shared_ptr<Process>> idle_;
};

}  // namespace kiln
