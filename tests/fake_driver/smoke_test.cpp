#include <gtest/gtest.h>
#include "support/fake_driver/fake_driver.hpp"
TEST(Smoke, Loads) { fake_driver::FakeDriver driver; EXPECT_EQ(driver.calls("cuInit"), 0u); }
