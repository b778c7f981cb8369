// A Runtime with a cache of its own on the first device, for tests that launch. Skips the test,
// with the reason, where there is no GPU.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string_view>

#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"
#include "support/kernels.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRES_GPU();
    driver_.emplace(*std::move(CudaDriver::open()));
    auto runtime = Runtime::open({.cache_directory = directory_.path() / "cache"});
    ASSERT_TRUE(runtime) << message_of(runtime);
    runtime_.emplace(*std::move(runtime));
  }

  void add(std::string_view name, std::string_view text) {
    if (!runtime_) return;  // the test is being skipped
    const auto status = runtime_->add_source(name, text);
    EXPECT_TRUE(status) << message_of(status);
  }
  KernelId id_of(const KernelSpec& spec) {
    const auto id = runtime_->add(spec);
    EXPECT_TRUE(id) << message_of(id);
    return id ? *id : KernelId{};
  }
  Kernel kernel(const KernelSpec& spec) {
    auto kernel = runtime_->get(id_of(spec));
    EXPECT_TRUE(kernel) << message_of(kernel);
    return kernel ? *kernel : Kernel();
  }
  LaunchPool& launches() { return runtime_->launches(); }

  TemporaryDirectory directory_;
  std::optional<CudaDriver> driver_;
  std::optional<Runtime> runtime_;
};

}  // namespace kiln::test
