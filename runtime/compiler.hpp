// NVRTC, opened at the first compile and never before: a program goes in, a checked cubin with its
// facts comes out.
//
// Threads: any; NVRTC compiles on several threads at once.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/artifact.hpp"
#include "kiln/error.hpp"
#include "runtime/nvrtc_library.hpp"
#include "runtime/nvrtc_search.hpp"
#include "runtime/program.hpp"

namespace kiln {

/// The arguments that NVRTC gets for `program`, in order; benchmarks compare against the same.
std::vector<std::string> nvrtc_arguments(const Program& program, std::string_view architecture,
                                         const ToolchainId& toolchain);

class Compiler {
 public:
  /// `search` says where NVRTC lies, or that there is none.
  explicit Compiler(NvrtcSearch search) : search_(std::move(search)) {}

  const NvrtcSearch& search() const noexcept { return search_; }
  bool loaded() const noexcept { return loaded_.load(std::memory_order_acquire); }

  /// Errors  no_toolchain; unsupported for an architecture or option that this NVRTC lacks;
  ///         compile_failed with the whole log as detail.
  /// `passing` becomes true for a failure that may not come again with the same inputs.
  Result<Artifact> compile(const Program& program, std::string_view architecture,
                           const CompileKey& key, const ToolchainId& toolchain, bool& passing);

  /// Checks how `architecture` is written, without NVRTC as long as it is right.
  /// Errors  as parse_architecture(), with the list that this NVRTC supports where there is one.
  Status check_target(std::string_view architecture);

 private:
  Result<const NvrtcLibrary*> library();

  NvrtcSearch search_;
  std::mutex mutex_;
  std::unique_ptr<NvrtcLibrary> library_;
  std::atomic<bool> loaded_{false};
};

}  // namespace kiln
