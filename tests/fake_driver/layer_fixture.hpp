// What tests of any layer on the fake driver begin with.
#pragma once

#include <optional>
#include <utility>

#include "fixture.hpp"

namespace kiln::test {

class LayerFixture : public FakeDriverFixture {
 protected:
  template <class Layer, class Options>
  Layer make_layer(const Options& options) {
    const auto device = runtime_->device();
    EXPECT_TRUE(device) << message_of(device);
    auto layer = Layer::create(*runtime_, options, *device);
    EXPECT_TRUE(layer) << message_of(layer);
    return *std::move(layer);
  }
  void warm_up() {
    const auto report = runtime_->warmup();
    ASSERT_TRUE(report) << message_of(report);
    ASSERT_EQ(report->failed, 0u);
    driver_.forget();
  }

  std::optional<Runtime> runtime_;
};

}  // namespace kiln::test
