// What tests with the fake NVRTC share: kernels that compile as they are told, and a count of their
// compiles over all processes.
#pragma once

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/runtime_fixture.hpp"

namespace kiln::test {

/// Holds the compiles that are told "deaf until <this file>", and lets them end with itself.
class HeldCompile {
 public:
  explicit HeldCompile(std::filesystem::path file) : file_(std::move(file)) {}
  HeldCompile(const HeldCompile&) = delete;
  ~HeldCompile() { write_file(file_, ""); }
  std::string file() const { return file_.string(); }

 private:
  std::filesystem::path file_;
};

class FakeCompilerFixture : public RuntimeFixture {
 protected:
  void SetUp() override { ::setenv("KILN_FAKE_NVRTC_LOG", log_.c_str(), 1); }
  void TearDown() override { ::unsetenv("KILN_FAKE_NVRTC_LOG"); }

  RuntimeOptions fake_options() {
    auto fake = options();
    fake.nvrtc = KILN_FAKE_NVRTC;
    return fake;
  }
  RuntimeOptions worker_options() {
    auto fake = fake_options();
    fake.worker_command = {KILN_WORKER_PATH, "compile-worker"};
    return fake;
  }

  /// A kernel called `name` that compiles as `command` tells; "" is at once.
  static KernelId add(Runtime& runtime, const std::string& name, const std::string& command) {
    EXPECT_TRUE(runtime.add_source(
        name + ".cu", "// " + name + "\n" + (command.empty() ? "" : "// fake: " + command + "\n")));
    const auto id = runtime.add({.name = name, .source = name + ".cu"});
    EXPECT_TRUE(id) << message_of(id);
    return id ? *id : KernelId{};
  }

  /// How often the compile of the kernel `name` has begun, or ended, in any process.
  std::size_t count(const std::string& what, const std::string& name) const {
    std::istringstream lines(read_file(log_));
    std::size_t found = 0;
    for (std::string line; std::getline(lines, line);) found += line == what + " // " + name;
    return found;
  }
  std::size_t begun(const std::string& name) const { return count("begin", name); }
  std::size_t ended(const std::string& name) const { return count("end", name); }

  static const KernelReport& report_of(const WarmupReport& report, const std::string& name) {
    for (const auto& kernel : report.kernels)
      if (kernel.kernel == name) return kernel;
    ADD_FAILURE() << "no report of " << name;
    return report.kernels.front();
  }

  static constexpr const char* kArch = "sm_90";
  std::filesystem::path log_ = directory_ / "compiles";
};

}  // namespace kiln::test
