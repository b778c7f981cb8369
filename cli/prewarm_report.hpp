// What kiln prewarm tells: each kernel as it is done, then the sum, for people or as JSON.
//
// Threads: step() from any thread, one call at a time. Refers to the request and the output.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/manifest_request.hpp"
#include "cli/output.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {

/// One kernel of a dry run.
struct PlannedKernel {
  std::string kernel{};
  std::string title{};  ///< see ManifestRequest
  std::string architecture{};
  Lookup found{};
};

class PrewarmReport {
 public:
  PrewarmReport(const ManifestRequest& request, std::filesystem::path cache_directory,
                Output& output)
      : request_(request), cache_directory_(std::move(cache_directory)), output_(output) {}

  /// One line for a kernel that is done; the progress bar stands for it on a terminal.
  void step(const KernelReport& kernel) const;
  /// The sum, each failure with its whole log, and the exit code.
  ExitCode finish(const WarmupReport& report) const;
  /// The result of a dry run.
  void planned(const std::vector<PlannedKernel>& kernels) const;

 private:
  Json head() const;

  std::string title_of(KernelId id) const;

  const ManifestRequest& request_;
  const std::filesystem::path cache_directory_;
  Output& output_;
};

}  // namespace kiln::cli
