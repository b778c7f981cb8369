// What a prepared launch hands to the driver, to the byte.
#include <cstring>

#include "fixture.hpp"
#include "support/stream_caller.hpp"

namespace kiln::test {
namespace {

using fake_driver::Launch;

class Launching : public FakeDriverFixture {
 protected:
  Launch only() {
    const auto launches = driver_.launches();
    EXPECT_EQ(launches.size(), 1u);
    return launches.empty() ? Launch() : launches.front();
  }
};

CUlaunchAttribute cluster_of(unsigned x, unsigned y, unsigned z) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {x, y, z};
  return attribute;
}

CUlaunchAttribute overlap() {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

TEST_F(Launching, TheAttributesAreExactlyThoseAskedFor) {
  auto runtime = runtime_with({kWaitSource});
  const auto kernel = get(runtime);
  struct Case {
    LaunchShape shape;
    std::vector<CUlaunchAttribute> attributes;
  };
  const Case cases[] = {
      {{}, {}},
      {{.grid_blocks = {8, 4, 2}, .cluster_blocks = {4, 2, 1}}, {cluster_of(4, 2, 1)}},
      {{.overlap_previous = Overlap::yes}, {overlap()}},
      {{.grid_blocks = {6}, .cluster_blocks = {2}, .overlap_previous = Overlap::yes},
       {cluster_of(2, 1, 1), overlap()}},
  };
  for (const auto& [shape, attributes] : cases) {
    driver_.forget();
    auto launch = runtime.launches().prepare(kernel, shape, CUdeviceptr{0});
    ASSERT_TRUE(launch) << message_of(launch);
    ASSERT_TRUE(launch->launch(nullptr));
    const auto seen = only().attributes;
    ASSERT_EQ(seen.size(), attributes.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_EQ(seen[i].id, attributes[i].id);
      EXPECT_EQ(std::memcmp(&seen[i].value, &attributes[i].value, sizeof seen[i].value), 0);
    }
  }
}

TEST_F(Launching, ShapeAndStreamPassThrough) {
  auto runtime = runtime_with({kSharedSource});
  const auto kernel = get(runtime);
  const auto stream = cuda_->stream();
  for (auto* handle :
       {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, stream.handle()}) {
    driver_.forget();
    auto launch = runtime.launches().prepare(
        kernel, {.grid_blocks = {5, 4, 3}, .block_threads = {32, 2, 2}, .shared_bytes = 100 << 10},
        CUdeviceptr{0});
    ASSERT_TRUE(launch && launch->launch(handle));
    const auto seen = only();
    EXPECT_EQ(seen.kernel, "entry");
    EXPECT_EQ(seen.device, 0);
    EXPECT_EQ(seen.grid, (std::array<unsigned, 3>{5, 4, 3}));
    EXPECT_EQ(seen.block, (std::array<unsigned, 3>{32, 2, 2}));
    EXPECT_EQ(seen.shared_bytes, 100u << 10);
    EXPECT_EQ(seen.stream, handle);
  }
}

// However the caller is built: trial T29.
TEST_F(Launching, HandlesOfStreamsPassThroughFromBothBuildsOfACaller) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch) << message_of(launch);
  EXPECT_FALSE(plain_caller.null_is_per_thread);
  EXPECT_TRUE(per_thread_caller.null_is_per_thread);
  for (const auto* caller : {&plain_caller, &per_thread_caller})
    for (const auto handle : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
      driver_.forget();
      ASSERT_TRUE(caller->launch(*launch, handle)) << caller->name;
      EXPECT_EQ(only().stream, handle) << caller->name;
    }
}

TEST_F(Launching, ArgumentsArriveByteForByte) {
  auto runtime = runtime_with({kLayoutSource});
  const auto kernel = get(runtime);
  Sixteen second{};
  for (int i = 0; i < 8; ++i) second.words[i] = 0x01020304 * (i + 1);
  Map third{};
  for (int i = 0; i < 128; ++i) third.bytes[i] = static_cast<unsigned char>(255 - i);
  const CUdeviceptr out = 0x7f12'3456'789a'bcd0;
  auto launch = runtime.launches().prepare(kernel, {}, 'a', second, third, 'b', out);
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->launch(nullptr));
  const auto seen = only();
  ASSERT_EQ(seen.arguments.size(), 5u);
  EXPECT_EQ(seen.argument<char>(0), 'a');
  EXPECT_EQ(std::memcmp(seen.arguments[1].data(), &second, sizeof second), 0);
  EXPECT_EQ(seen.arguments[2].size(), 128u);
  EXPECT_EQ(std::memcmp(seen.arguments[2].data(), &third, sizeof third), 0);
  EXPECT_EQ(seen.argument<char>(3), 'b');
  EXPECT_EQ(seen.argument<CUdeviceptr>(4), out);
}

// A kernel has no array parameter: one of 8 bytes would pass for the pointer that <<<>>> makes of
// it.
template <class T>
concept IsArgument = requires(LaunchPool pool, LaunchDescriptor launch, const T& value) {
  pool.prepare(Kernel(), LaunchShape(), 1, value);
  launch.set_argument(0, value);
};
static_assert(IsArgument<const float*> && IsArgument<Sixteen> && IsArgument<std::array<float, 2>>);
static_assert(!IsArgument<float[2]> && !IsArgument<char[8]> && !IsArgument<std::string>);

TEST_F(Launching, ChangedArgumentsAndGridsArriveAndTheRestStays) {
  auto runtime = runtime_with({kLayoutSource});
  auto launch =
      runtime.launches().prepare(get(runtime), {}, 'a', Sixteen{}, Map{}, 'b', CUdeviceptr{16});
  ASSERT_TRUE(launch);
  Map map{};
  map.bytes[127] = 9;
  ASSERT_TRUE(launch->set_argument(2, map));
  ASSERT_TRUE(launch->set_argument(3, 'c'));
  ASSERT_TRUE(launch->set_grid({7, 2, 1}));
  EXPECT_FALSE(launch->set_argument(3, 1));
  ASSERT_TRUE(launch->launch(nullptr));
  const auto seen = only();
  EXPECT_EQ(seen.grid, (std::array<unsigned, 3>{7, 2, 1}));
  EXPECT_EQ(seen.argument<char>(0), 'a');
  EXPECT_EQ(seen.argument<Map>(2).bytes[127], 9);
  EXPECT_EQ(seen.argument<char>(3), 'c');
  EXPECT_EQ(seen.argument<CUdeviceptr>(4), 16u);
}

TEST_F(Launching, ManyAndLargeArgumentsArrive) {
  std::string source =
      "struct Block { unsigned char bytes[1000]; };\n"
      "extern \"C\" __global__ void entry(Block block";
  for (int i = 0; i < 40; ++i) source += ", int a" + std::to_string(i);
  source += ", int* out) { out[0] = block.bytes[7] + a0 + a39; }\n";
  auto runtime = runtime_with({source});
  std::array<unsigned char, 1000> block{};
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<unsigned char>(i * 7);
  std::array<int, 40> numbers{};
  std::vector<Argument> arguments = {{block.data(), block.size()}};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int>(i * i);
    arguments.push_back({&numbers[i], sizeof(int)});
  }
  const CUdeviceptr out = 256;
  arguments.push_back({&out, sizeof out});
  auto launch = runtime.launches().prepare(get(runtime), {}, std::span<const Argument>(arguments));
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->launch(nullptr));
  const auto seen = only();
  ASSERT_EQ(seen.arguments.size(), arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    ASSERT_EQ(seen.arguments[i].size(), arguments[i].bytes);
    EXPECT_EQ(std::memcmp(seen.arguments[i].data(), arguments[i].data, arguments[i].bytes), 0) << i;
  }
}

TEST_F(Launching, EverySizeUpToTheLimitArrives) {
  for (const std::size_t size : {4095u, 4096u, 4097u, 32764u}) {
    const auto source = "struct Block { unsigned char bytes[" + std::to_string(size) +
                        "]; };\nextern \"C\" __global__ void entry(Block block) {}\n";
    auto runtime = runtime_with({source});
    std::vector<unsigned char> block(size);
    for (std::size_t i = 0; i < size; ++i) block[i] = static_cast<unsigned char>(i * 7 + i / 256);
    const auto kernel = get(runtime);
    const Argument whole{block.data(), size};
    auto launch = runtime.launches().prepare(kernel, {}, std::span(&whole, 1));
    ASSERT_TRUE(launch) << message_of(launch);
    driver_.forget();
    ASSERT_TRUE(launch->launch(nullptr));
    const auto seen = only();
    ASSERT_EQ(seen.arguments.size(), 1u);
    EXPECT_EQ(seen.arguments[0], block) << size;
    const Argument less{block.data(), size - 1};
    const auto refused = runtime.launches().prepare(kernel, {}, std::span(&less, 1));
    EXPECT_NE(message_of(refused).find(std::to_string(size)), std::string::npos)
        << message_of(refused);
  }
}

TEST_F(Launching, MoreParametersThanFourThousandArrive) {
  constexpr std::size_t kCount = 4097;
  std::string source = "extern \"C\" __global__ void entry(char a0";
  for (std::size_t i = 1; i < kCount; ++i) source += ", char a" + std::to_string(i);
  auto runtime = runtime_with({source + ") {}\n"});
  std::vector<char> bytes(kCount);
  std::vector<Argument> arguments;
  for (std::size_t i = 0; i < kCount; ++i) {
    bytes[i] = static_cast<char>(i % 101);
    arguments.push_back({&bytes[i], 1});
  }
  auto launch = runtime.launches().prepare(get(runtime), {}, std::span<const Argument>(arguments));
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->set_argument(kCount - 1, 'z'));
  bytes[kCount - 1] = 'z';
  EXPECT_EQ(launch->set_argument(kCount, 'z').code(), ErrorCode::invalid_argument);
  ASSERT_TRUE(launch->launch(nullptr));
  const auto seen = only();
  ASSERT_EQ(seen.arguments.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(seen.argument<char>(i), bytes[i]) << i;
}

TEST_F(Launching, AFailedLaunchSaysSoAndTheNextOneGoes) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch);
  driver_.fail("cuLaunchKernelEx", CUDA_ERROR_LAUNCH_FAILED, 2);
  EXPECT_TRUE(launch->launch(nullptr));
  const auto status = launch->launch(nullptr);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().driver_result(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(message_of(status).find("cuLaunchKernelEx"), std::string::npos);
  EXPECT_NE(message_of(status).find("CUDA_ERROR_LAUNCH_FAILED"), std::string::npos);
  EXPECT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(driver_.launches().size(), 2u);
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 3u);
}

// Of a server's many kernels, and though what failed may be the work of another.
TEST_F(Launching, AFailureOfTheDriverNamesTheKernelAndWhatToLookAt) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch);
  struct Case {
    CUresult result;
    std::string says;
  };
  for (const auto& [result, says] :
       {Case{CUDA_ERROR_INVALID_HANDLE, "; kernel plain (sm_90a): its stream, graph"},
        Case{CUDA_ERROR_INVALID_CONTEXT, "; kernel plain (sm_90a): make a context of its device"},
        Case{CUDA_ERROR_ILLEGAL_ADDRESS, "; kernel plain (sm_90a): any work before it"},
        Case{CUDA_ERROR_NOT_SUPPORTED, "; kernel plain (sm_90a)"}}) {
    for (const auto* call : {"cuLaunchKernelEx", "cuGraphNodeSetEnabled"}) {
      driver_.succeed(call);
      driver_.fail(call, result);
    }
    for (const auto& status : {launch->launch(nullptr), launch->set_enabled(nullptr, {}, true)}) {
      EXPECT_EQ(status.code(), ErrorCode::driver_failed);
      EXPECT_NE(message_of(status).find(says), std::string::npos) << message_of(status);
    }
  }
  auto late = runtime_with({kSharedSource});
  driver_.fail("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
  const auto kernel = late.get({0});
  EXPECT_NE(message_of(kernel).find("kernel plain (sm_90a): the device has no memory left for it"),
            std::string::npos)
      << message_of(kernel);
}

TEST_F(Launching, NothingThatPreparationAcceptsIsRefusedByTheDriver) {
  auto runtime = runtime_with({kSharedSource});
  const auto kernel = get(runtime);
  const LaunchShape shapes[] = {
      {.block_threads = {1024}},
      {.block_threads = {1, 1, 64}},
      {.grid_blocks = {2147483647}},
      {.grid_blocks = {1, 65535, 65535}},
      {.grid_blocks = {8}, .cluster_blocks = {8}},
      {.shared_bytes = 232448 - 1024},
  };
  for (const auto& shape : shapes) {
    auto launch = runtime.launches().prepare(kernel, shape, CUdeviceptr{0});
    ASSERT_TRUE(launch) << message_of(launch);
    EXPECT_TRUE(launch->launch(nullptr)) << shape.grid_blocks.x << " " << shape.block_threads.x;
  }
}

TEST_F(Launching, ALaunchIsOneCallOfTheDriver) {
  auto runtime = runtime_with({kWaitSource});
  auto launch = runtime.launches().prepare(get(runtime), {}, CUdeviceptr{0});
  ASSERT_TRUE(launch);
  driver_.forget();
  driver_.set_recording(false);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(launch->launch(nullptr));
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx"), 1000u);
  EXPECT_EQ(driver_.calls("cuCtxGetCurrent"), 0u);
  EXPECT_EQ(driver_.calls("cuKernelGetFunction"), 0u);
  EXPECT_TRUE(driver_.launches().empty());
}

}  // namespace
}  // namespace kiln::test
