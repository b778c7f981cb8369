// What tests of the Runtime against the fake driver share: the driver with a context current, and
// kernels compiled by the real NVRTC.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/cuda_driver.hpp"
#include "support/fake_driver/fake_driver.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {

using fake_driver::FakeDriver;

// Parameters of every kind of size and alignment.
inline constexpr std::string_view kLayoutSource = R"(
struct alignas(16) Sixteen { int words[8]; };
struct alignas(64) Map { unsigned char bytes[128]; };
extern "C" __global__ void entry(char first, Sixteen second, Map third, char fourth, int* out) {
  out[0] = first + second.words[7] + third.bytes[127] + fourth;
}
)";
struct alignas(16) Sixteen {
  int words[8];
};
struct alignas(64) Map {
  unsigned char bytes[128];
};

// 1 KiB of static shared memory, any amount of dynamic.
inline constexpr std::string_view kSharedSource = R"(
extern "C" __global__ void entry(int* out) {
  extern __shared__ int dynamic[];
  __shared__ int fixed[256];
  fixed[threadIdx.x] = dynamic[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = fixed[255 - threadIdx.x] + dynamic[255 - threadIdx.x];
}
)";

inline constexpr std::string_view kWaitSource = R"(
extern "C" __global__ void entry(int* out) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  out[0] = 1;
}
)";

class FakeDriverFixture : public RuntimeFixture {
 protected:
  void SetUp() override {
    RuntimeFixture::SetUp();
    if (!IsSkipped()) make_current();
  }

  /// Makes the primary context of device 0 current.
  void make_current() {
    auto opened = CudaDriver::open();
    ASSERT_TRUE(opened) << opened.error().message();
    cuda_.emplace(*std::move(opened));
    driver_.forget();
  }

  /// A Runtime that has registered `sources` as plain kernels, in their order.
  Runtime runtime_with(const std::vector<std::string_view>& sources) {
    auto runtime = open();
    for (const auto& source : sources) {
      const auto name = "source" + std::to_string(&source - sources.data()) + ".cu";
      EXPECT_TRUE(runtime.add_source(name, source));
      const auto id = runtime.add(plain_spec(name));
      EXPECT_TRUE(id) << message_of(id);
    }
    return runtime;
  }

  static Kernel get(Runtime& runtime, std::uint32_t index = 0) {
    const auto kernel = runtime.get({index});
    EXPECT_TRUE(kernel) << message_of(kernel);
    return kernel ? *kernel : Kernel();
  }

  FakeDriver driver_;
  std::optional<CudaDriver> cuda_;
};

}  // namespace kiln::test
