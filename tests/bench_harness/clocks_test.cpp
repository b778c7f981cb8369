// NVML by a table of functions of the test's own.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/bench/clocks.hpp"

namespace kiln::bench {
namespace {

int marker;

NvmlApi fake_nvml() {
  NvmlApi nvml;
  nvml.init = [] { return 0; };
  nvml.driver_version = [](char* text, unsigned bytes) {
    std::strncpy(text, "580.1.2", bytes);
    return 0;
  };
  nvml.device_by_pci = [](const char* id, NvmlApi::Device* device) {
    *device = &marker;
    return std::strcmp(id, "0000:01:00.0") == 0 ? 0 : 6;
  };
  nvml.clock = [](NvmlApi::Device device, int domain, unsigned* mhz) {
    *mhz = domain == 1 && device == &marker ? 1755 : 0;
    return 0;
  };
  nvml.most_clock = [](NvmlApi::Device device, int domain, unsigned* mhz) {
    *mhz = domain == 1 && device == &marker ? 1980 : 0;
    return 0;
  };
  nvml.reasons = [](NvmlApi::Device, unsigned long long* bits) {
    *bits = 4;
    return 0;
  };
  return nvml;
}

TEST(BenchClocks, ReadTheSmClockItsMaximumAndWhatThrottles) {
  const auto clocks = DeviceClocks::open(fake_nvml(), "0000:01:00.0");
  ASSERT_TRUE(clocks) << clocks.error().message();
  const auto clock = clocks->read();
  ASSERT_TRUE(clock);
  EXPECT_EQ(clock->sm_mhz, 1755u);
  EXPECT_EQ(clock->most_sm_mhz, 1980u);
  EXPECT_EQ(clock->throttle_reasons, 4u);
  EXPECT_EQ(driver_version_of(fake_nvml()), "580.1.2");
}

TEST(BenchClocks, AFailedCallIsNamedWithItsNumber) {
  const auto missing = DeviceClocks::open(fake_nvml(), "0000:02:00.0");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("nvmlDeviceGetHandleByPciBusId answers 6"),
            std::string::npos)
      << missing.error().message();
  auto nvml = fake_nvml();
  nvml.clock = [](NvmlApi::Device, int, unsigned*) { return 3; };
  const auto clocks = DeviceClocks::open(nvml, "0000:01:00.0");
  ASSERT_TRUE(clocks);
  EXPECT_FALSE(clocks->read());
  nvml.init = [] { return 9; };
  EXPECT_FALSE(DeviceClocks::open(nvml, "0000:01:00.0"));
  EXPECT_EQ(driver_version_of(nvml), "");
}

TEST(BenchClocks, ReasonsMayBeMissing) {
  auto nvml = fake_nvml();
  nvml.reasons = nullptr;
  const auto clocks = DeviceClocks::open(nvml, "0000:01:00.0");
  ASSERT_TRUE(clocks);
  EXPECT_EQ(clocks->read()->throttle_reasons, 0u);
}

}  // namespace
}  // namespace kiln::bench
