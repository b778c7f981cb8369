// The README's embedding example, which tests/CMakeLists.txt takes out of README.md.
#include <gtest/gtest.h>

#include <vector>

#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"
#include "support/requires_nvrtc.hpp"
#include "support/runtime_fixture.hpp"

kiln::Status twice(float* x, int count, CUstream stream);

namespace kiln::test {
namespace {

// It keeps its cache in a directory named "kernels" below the working directory.
TEST(Readme, TheEmbeddingExampleDoublesOrSaysThatThereIsNoGpu) {
  const TemporaryDirectory directory;
  const WorkingDirectory inside(directory.path());
  auto driver = CudaDriver::open();
  if (!driver) {
    const auto status = twice(nullptr, 3, nullptr);
    EXPECT_EQ(status.code(), ErrorCode::no_device) << (status ? "ok" : status.error().message());
    return;
  }
  KILN_REQUIRES_NVRTC();
  auto x = driver->upload(std::vector<float>{1, 2, 3});
  const auto status = twice(x.pointer<float>(), 3, nullptr);
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(x.download<float>(), (std::vector<float>{2, 4, 6}));
  EXPECT_TRUE(std::filesystem::exists(directory / "kernels"));
}

}  // namespace
}  // namespace kiln::test
