// What tests of a Runtime without a device share: a cache of their own, the warnings, entries by
// name, and a working directory to spoil.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kiln/runtime.hpp"
#include "support/kernels.hpp"
#include "support/requires_nvrtc.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {

class RuntimeFixture : public ::testing::Test {
 protected:
  void SetUp() override { KILN_REQUIRES_NVRTC(); }

  RuntimeOptions options() {
    RuntimeOptions options;
    options.cache_directory = cache_;
    options.log = [this](LogLevel level, std::string_view message) {
      const std::lock_guard lock(mutex_);
      if (level >= LogLevel::warning) warnings_.emplace_back(message);
    };
    return options;
  }

  Runtime open() { return open(options()); }
  static Runtime open(RuntimeOptions options) {
    auto runtime = Runtime::open(std::move(options));
    EXPECT_TRUE(runtime) << message_of(runtime);
    return *std::move(runtime);
  }

  /// Compiles `text` as the root file "trial.cu".
  static Result<Artifact> compile(Runtime& runtime, std::string_view text, KernelSpec spec = {}) {
    spec.name = "trial";
    spec.source = "trial.cu";
    if (auto status = runtime.add_source("trial.cu", text); !status) return status.error();
    KILN_TRY(const auto id, runtime.add(spec));
    return runtime.artifact(id, "sm_90a");
  }
  Result<Artifact> compile(std::string_view text, KernelSpec spec = {}) {
    auto runtime = open();
    return compile(runtime, text, std::move(spec));
  }

  static std::string cubin_of(const Artifact& artifact) {
    return {reinterpret_cast<const char*>(artifact.cubin), artifact.cubin_bytes};
  }

  std::filesystem::path entry_path(const cache::Digest& key) const {
    const auto hex = key.hex();
    return cache_ / "v1" / "e" / hex.substr(0, 2) / hex.substr(2);
  }

  std::size_t warnings_with(std::string_view text) {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& warning : warnings_) count += warning.find(text) != std::string::npos;
    return count;
  }

  std::size_t entries() const {
    std::size_t count = 0;
    std::error_code failure;
    for (std::filesystem::recursive_directory_iterator at(cache_ / "v1" / "e", failure), end;
         !failure && at != end; at.increment(failure))
      count += at->is_regular_file();
    return count;
  }

  TemporaryDirectory directory_;
  std::filesystem::path cache_ = directory_.path() / "cache";
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

/// Makes `path` the working directory for as long as it lives.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& path)
      : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }

 private:
  std::filesystem::path before_;
};

}  // namespace kiln::test
