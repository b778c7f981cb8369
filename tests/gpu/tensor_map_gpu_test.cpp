// Tensor maps on a device: boxes copied by TMA against the bytes they must be, both ABIs, patching,
// captured graphs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <optional>
#include <vector>

#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"
#include "support/temporary_directory.hpp"
#include "support/tensor_map_kernel.hpp"

namespace kiln::test {
namespace {

constexpr int kRows = 60;
constexpr int kColumns = 256;
constexpr unsigned kBoxRows = 16;
constexpr unsigned kBoxColumns = 64;  // 128 bytes
constexpr unsigned kBoxBytes = kBoxRows * kBoxColumns * 2;

using Values = std::vector<std::uint16_t>;

// A tensor of rows of u16, each value another one, and none zero.
Values numbered(unsigned first) {
  Values values(static_cast<std::size_t>(kRows) * kColumns);
  std::iota(values.begin(), values.end(), static_cast<std::uint16_t>(first));
  return values;
}

// The box at (x, y) as shared memory must hold it; zeros outside.
Values box_of(const Values& tensor, int x, int y, Swizzle swizzle) {
  Values box(kBoxRows * kBoxColumns, 0);
  for (int row = 0; row < static_cast<int>(kBoxRows); ++row)
    for (int column = 0; column < static_cast<int>(kBoxColumns); ++column) {
      const int from_row = y + row;
      const int from_column = x + column;
      if (from_row < 0 || from_row >= kRows || from_column < 0 || from_column >= kColumns) continue;
      int chunk = column / 8;
      if (swizzle == Swizzle::bytes_128) chunk ^= row % 8;
      box[static_cast<std::size_t>(row * static_cast<int>(kBoxColumns) + chunk * 8 + column % 8)] =
          tensor[static_cast<std::size_t>(from_row * kColumns + from_column)];
    }
  return box;
}

class TensorMapGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRES_GPU();
    driver_.emplace(*std::move(CudaDriver::open()));
    auto runtime = Runtime::open({.cache_directory = directory_.path() / "cache"});
    ASSERT_TRUE(runtime) << message_of(runtime);
    runtime_.emplace(*std::move(runtime));
    const auto device = runtime_->device();
    ASSERT_TRUE(device) << message_of(device);
    if (std::atoi(device->architecture.c_str() + 3) < 90)
      GTEST_SKIP() << device->architecture << " has no TMA";
    ASSERT_TRUE(add_tensor_map_source(*runtime_));
    first_.emplace(driver_->upload(first_values_));
    second_.emplace(driver_->upload(second_values_));
    out_.emplace(driver_->buffer(kBoxBytes));
  }

  Kernel kernel(const char* entry) {
    const auto id = runtime_->add(tensor_map_spec(entry, kBoxBytes));
    EXPECT_TRUE(id) << message_of(id);
    auto kernel = id ? runtime_->get(*id) : Result<Kernel>(id.error());
    EXPECT_TRUE(kernel) << message_of(kernel);
    return kernel ? *kernel : Kernel();
  }

  TensorMapBuilder builder() {
    auto builder = runtime_->tensor_map_builder();
    EXPECT_TRUE(builder) << message_of(builder);
    return *std::move(builder);
  }

  static TensorMapSpec spec_of(const DeviceBuffer& tensor, Swizzle swizzle = Swizzle::none) {
    return {.address = tensor.pointer(),
            .type = ElementType::u16,
            .rank = 2,
            .extents = {kColumns, kRows},
            .strides_bytes = {kColumns * 2},
            .box = {kBoxColumns, kBoxRows},
            .swizzle = swizzle};
  }

  Values taken() {
    auto box = out_->download<std::uint16_t>();
    out_->fill(0xEE);
    return box;
  }

  const LaunchShape shape_{.block_threads = {128}};
  const Values first_values_ = numbered(1);
  const Values second_values_ = numbered(30000);
  TemporaryDirectory directory_;
  std::optional<CudaDriver> driver_;
  std::optional<Runtime> runtime_;
  std::optional<DeviceBuffer> first_;
  std::optional<DeviceBuffer> second_;
  std::optional<DeviceBuffer> out_;
};

TEST_F(TensorMapGpu, CopiesBoxesByValueInsideAndAcrossTheEdges) {
  const auto by_value = kernel("by_value");
  for (const auto swizzle : {Swizzle::none, Swizzle::bytes_128}) {
    auto map = builder();
    const auto built = map.build(spec_of(*first_, swizzle));
    ASSERT_TRUE(built) << message_of(built);
    for (const auto& [x, y] : {std::pair{0, 0}, {64, 32}, {8, 3}, {224, 50}, {-16, -3}}) {
      auto launch =
          runtime_->launches().prepare(by_value, shape_, map.map(), x, y, out_->address());
      ASSERT_TRUE(launch && launch->launch(nullptr)) << message_of(launch);
      EXPECT_EQ(taken(), box_of(first_values_, x, y, swizzle))
          << "swizzle " << static_cast<int>(swizzle) << " at " << x << ", " << y;
    }
  }
}

TEST_F(TensorMapGpu, APatchedMapIsBitwiseTheEncodedOneAndLeadsToTheNewTensor) {
  auto patched = builder();
  auto encoded = builder();
  ASSERT_TRUE(patched.build(spec_of(*first_)));
  const auto change = patched.build(spec_of(*second_));
  ASSERT_TRUE(change) << message_of(change);
  EXPECT_EQ(*change, TensorMapChange::address);
  EXPECT_EQ(*encoded.build(spec_of(*second_)), TensorMapChange::encoded);
  EXPECT_EQ(patched.map(), encoded.map());
  auto launch = runtime_->launches().prepare(kernel("by_value"), shape_, patched.map(), 64, 8,
                                             out_->address());
  ASSERT_TRUE(launch && launch->launch(nullptr));
  EXPECT_EQ(taken(), box_of(second_values_, 64, 8, Swizzle::none));
  ASSERT_TRUE(patched.build(spec_of(*first_)) && launch->set_argument(0, patched.map()) &&
              launch->launch(nullptr));
  EXPECT_EQ(taken(), box_of(first_values_, 64, 8, Swizzle::none));
}

TEST_F(TensorMapGpu, ACapturedLaunchKeepsTheMapItWasCapturedWith) {
  auto map = builder();
  ASSERT_TRUE(map.build(spec_of(*first_, Swizzle::bytes_128)));
  auto launch =
      runtime_->launches().prepare(kernel("by_value"), shape_, map.map(), 0, 16, out_->address());
  ASSERT_TRUE(launch) << message_of(launch);
  auto stream = driver_->stream();
  auto graph = driver_->capture(stream, [&] { ASSERT_TRUE(launch->launch(stream.handle())); });
  ASSERT_TRUE(map.build(spec_of(*second_, Swizzle::bytes_128)));
  ASSERT_TRUE(launch->set_argument(0, map.map()));
  for (int replay = 0; replay < 2; ++replay) {
    graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(taken(), box_of(first_values_, 0, 16, Swizzle::bytes_128));
  }
  ASSERT_TRUE(launch->launch(stream.handle()));
  stream.synchronize();
  EXPECT_EQ(taken(), box_of(second_values_, 0, 16, Swizzle::bytes_128));
}

// Many writes and launches without a wait between them: each launch sees the map before it.
TEST_F(TensorMapGpu, ASlotsWritesAndTheLaunchesKeepTheirOrder) {
  auto array = runtime_->tensor_map_array(3);
  ASSERT_TRUE(array) << message_of(array);
  auto map = builder();
  constexpr unsigned kSteps = 32;
  auto boxes = driver_->buffer(kSteps * kBoxBytes);
  auto launch = runtime_->launches().prepare(kernel("by_pointer"), shape_, array->address(2), 64, 0,
                                             boxes.address());
  ASSERT_TRUE(launch) << message_of(launch);
  auto stream = driver_->stream();
  for (unsigned step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(map.build(spec_of(step % 2 == 0 ? *first_ : *second_)));
    const auto written = array->set(2, map.map(), stream.handle());
    ASSERT_TRUE(written) << message_of(written);
    ASSERT_TRUE(launch->set_argument(3, boxes.address() + step * kBoxBytes));
    ASSERT_TRUE(launch->launch(stream.handle()));
  }
  stream.synchronize();
  for (unsigned step = 0; step < kSteps; ++step)
    EXPECT_EQ(boxes.download<std::uint16_t>(step * kBoxBytes, kBoxBytes / 2),
              box_of(step % 2 == 0 ? first_values_ : second_values_, 64, 0, Swizzle::none))
        << "step " << step;
}

TEST_F(TensorMapGpu, AGraphFollowsItsSlotAndACapturedWriteKeepsItsMap) {
  auto array = runtime_->tensor_map_array(1);
  ASSERT_TRUE(array) << message_of(array);
  auto map = builder();
  auto launch = runtime_->launches().prepare(kernel("by_pointer"), shape_, array->address(0), 0, 0,
                                             out_->address());
  ASSERT_TRUE(launch) << message_of(launch);
  auto stream = driver_->stream();
  const auto replay = [&](const Graph& graph) {
    graph.launch(stream);
    stream.synchronize();
    return taken();
  };
  // The launch alone: what it copies is what the slot holds at the replay.
  auto follows = driver_->capture(stream, [&] { ASSERT_TRUE(launch->launch(stream.handle())); });
  ASSERT_TRUE(map.build(spec_of(*first_)) && array->set(0, map.map(), stream.handle()));
  EXPECT_EQ(replay(follows), box_of(first_values_, 0, 0, Swizzle::none));
  ASSERT_TRUE(map.build(spec_of(*second_)) && array->set(0, map.map(), stream.handle()));
  EXPECT_EQ(replay(follows), box_of(second_values_, 0, 0, Swizzle::none));
  // With the write: the map of the capture, whatever the slot and the builder hold by then.
  auto writes = driver_->capture(stream, [&] {
    const auto written = array->set(0, map.map(), stream.handle());
    ASSERT_TRUE(written) << message_of(written);
    ASSERT_TRUE(launch->launch(stream.handle()));
  });
  ASSERT_TRUE(map.build(spec_of(*first_)) && array->set(0, map.map(), stream.handle()));
  EXPECT_EQ(replay(writes), box_of(second_values_, 0, 0, Swizzle::none));
}

// What the checks let through beyond the formula in cuda.h, whose strides grow: a transposed view.
TEST_F(TensorMapGpu, TheDriverTakesDimensionsInAnyOrder) {
  auto map = builder();
  auto spec = spec_of(*first_);
  spec.rank = 3;
  spec.extents = {64, kRows, kColumns / 64};
  spec.strides_bytes = {kColumns * 2, 64 * 2};
  spec.box = {kBoxColumns, kBoxRows, 1};
  const auto built = map.build(spec);
  EXPECT_TRUE(built) << message_of(built);
}

TEST_F(TensorMapGpu, TheAbisAreNotMistakenForEachOther) {
  const TensorMap map;
  const auto refused =
      runtime_->launches().prepare(kernel("by_pointer"), shape_, map, 0, 0, out_->address());
  EXPECT_NE(message_of(refused).find("argument 0 has 128 bytes, the parameter has 8"),
            std::string::npos)
      << message_of(refused);
}

}  // namespace
}  // namespace kiln::test
