// NVRTC, opened at the first compile and never before: a program goes in, a checked cubin with its
// facts comes out.
//
// Threads: any; NVRTC compiles on several threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/artifact.hpp"
#include "kiln/error.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/nvrtc_library.hpp"
#include "runtime/nvrtc_run.hpp"
#include "runtime/nvrtc_search.hpp"
#include "runtime/process_guard.hpp"
#include "runtime/program.hpp"
#include "runtime/shared_header.hpp"

namespace kiln {

/// The arguments that NVRTC gets for `program`, in order; benchmarks compare against the same.
std::vector<std::string> nvrtc_arguments(const Program& program, std::string_view architecture,
                                         const ToolchainId& toolchain);

/// What the caller of one compile has to say to it, and what it tells beside its result.
struct CompileWatch {
  /// Asked now and then by the compiling thread; true ends the compile. NVRTC may go for seconds
  /// without asking. Empty: it runs to its end.
  std::function<bool()> stop{};
  /// The failure may not come again with the same inputs: memory ran out, or a worker died.
  bool passing = false;
  /// The compiling process's own, at its peak; 0 where it cannot be told.
  std::uint64_t peak_bytes = 0;
  /// Others are compiled here that can have a precompiled header in common with this one.
  bool share_header = false;
  bool header_shared = false;  ///< it was compiled with that header
  /// Why that header could not be made or used; the program was compiled without it.
  std::string header_trouble{};

  bool should_stop() const { return process_is_ending() || (stop && stop()); }
};

/// The error of a compile that CompileWatch::stop ended.
Error compile_stopped(const std::string& kernel, std::string_view architecture);

class Compiler {
 public:
  /// `search` says where NVRTC lies, or that there is none.
  explicit Compiler(NvrtcSearch search) : search_(std::move(search)) {}

  const NvrtcSearch& search() const noexcept { return search_; }
  bool loaded() const noexcept { return loaded_.load(std::memory_order_acquire); }

  /// Errors  no_toolchain; unsupported for an architecture or option that this NVRTC lacks;
  ///         compile_failed with the whole log as detail; not_ready when `watch` ended it.
  Result<Artifact> compile(const Program& program, std::string_view architecture,
                           const CompileKey& key, const ToolchainId& toolchain,
                           CompileWatch& watch);

  /// Checks how `architecture` is written, without NVRTC as long as it is right.
  /// Errors  as parse_architecture(), with the list that this NVRTC supports where there is one.
  Status check_target(std::string_view architecture);

  /// Frees the precompiled headers; programs that share one later make another.
  void forget_headers() { headers_.clear(); }

 private:
  Result<const NvrtcLibrary*> library();
  static Result<std::unique_ptr<NvrtcRun>> run_alone(const NvrtcLibrary& nvrtc,
                                                     const Program& program,
                                                     const std::vector<std::string>& arguments,
                                                     CompileWatch& watch);
  // Null where there is no header to share, or it did not help.
  std::unique_ptr<NvrtcRun> run_with_header(const NvrtcLibrary& nvrtc, const Program& program,
                                            std::vector<std::string> arguments,
                                            const ToolchainId& toolchain, CompileWatch& watch);

  NvrtcSearch search_;
  ForkMutex mutex_;
  std::unique_ptr<NvrtcLibrary> library_;
  std::atomic<bool> loaded_{false};
  SharedHeaders headers_;
};

}  // namespace kiln
