// Arguments arrive byte for byte, whatever their size and alignment, by every route. Trial T26.
#include <cstring>
#include <vector>

#include "support/gpu_test.hpp"

namespace kiln::test {
namespace {

struct alignas(16) Sixteen {
  unsigned char bytes[16];
};
struct alignas(64) Wide {
  unsigned char bytes[128];
};
struct alignas(128) Aligned {
  unsigned char bytes[128];
};

// 1 + 16 + 1 + 8 + 128 + 1 bytes, one after the other.
constexpr std::size_t kMixedBytes = 155;
constexpr std::string_view kMixedSource = R"(
struct alignas(16) Sixteen { unsigned char bytes[16]; };
struct alignas(64) Wide { unsigned char bytes[128]; };
extern "C" __global__ void entry(unsigned char a, const __grid_constant__ Sixteen b,
                                 unsigned char c, unsigned long long d,
                                 const __grid_constant__ Wide e, unsigned char f,
                                 unsigned char* out) {
  *out++ = a;
  for (int i = 0; i < 16; ++i) *out++ = b.bytes[i];
  *out++ = c;
  for (int i = 0; i < 8; ++i) *out++ = static_cast<unsigned char>(d >> 8 * i);
  for (int i = 0; i < 128; ++i) *out++ = e.bytes[i];
  *out++ = f;
}
)";

constexpr std::string_view kAlignedSource = R"(
struct alignas(128) Aligned { unsigned char bytes[128]; };
extern "C" __global__ void entry(const __grid_constant__ Aligned a, unsigned char b,
                                 unsigned char* out) {
  for (int i = 0; i < 128; ++i) out[i] = a.bytes[i];
  out[128] = b;
}
)";

// A pointer and a block of bytes that make BYTES in all.
constexpr std::string_view kBlockSource = R"(
struct Block { unsigned char bytes[BYTES - 8]; };
extern "C" __global__ void entry(unsigned char* out, const __grid_constant__ Block block) {
  for (int i = threadIdx.x; i < BYTES - 8; i += blockDim.x) out[i] = block.bytes[i];
}
)";

class LaunchArgumentsGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    add("mixed.cu", kMixedSource);
    add("aligned.cu", kAlignedSource);
    add("block.cu", kBlockSource);
  }

  // Launches plainly, out of a capture, through an updated graph node, and with the packed bytes
  // handed to the driver as one buffer; each time the kernel must write `expected` to `out`.
  void expect_by_every_route(const Kernel& kernel, LaunchDescriptor& launch, DeviceBuffer& out,
                             const std::vector<unsigned char>& expected, unsigned threads) {
    auto stream = driver_->stream();
    const auto check = [&](const char* route) {
      stream.synchronize();
      EXPECT_EQ(out.download<unsigned char>(0, expected.size()), expected) << route;
      out.fill(0xEE);
    };
    out.fill(0xEE);
    ASSERT_TRUE(launch.launch(stream.handle()));
    check("plain");
    CapturedLaunch node;
    const auto graph = driver_->capture(stream, [&] {
      auto captured = launch.capture(stream.handle());
      ASSERT_TRUE(captured) << message_of(captured);
      node = *captured;
    });
    graph.launch(stream);
    check("captured");
    const auto updated = launch.update(graph.handle(), node);
    ASSERT_TRUE(updated) << message_of(updated);
    graph.launch(stream);
    check("updated node");

    const auto packed = launch.packed_arguments();
    std::vector<std::byte> bytes(packed.begin(), packed.end());
    std::size_t size = bytes.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = threads;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream.handle();
    KILN_CU(&driver_->functions(), cuLaunchKernelEx, &config,
            reinterpret_cast<CUfunction>(kernel.handle()), nullptr, extra);
    check("packed");
  }
};

template <class T>
T counting(unsigned char start) {
  T value;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    reinterpret_cast<unsigned char*>(&value)[i] = static_cast<unsigned char>(start + 7 * i);
  return value;
}

template <class T>
void append(std::vector<unsigned char>& bytes, const T& value) {
  // Not insert(), in which GCC 12 sees an overflow that is none.
  const auto end = bytes.size();
  bytes.resize(end + sizeof(T));
  std::memcpy(bytes.data() + end, &value, sizeof(T));
}

TEST_F(LaunchArgumentsGpu, T26MixedSizesAndAlignments) {
  const auto echo = kernel({.name = "mixed", .source = "mixed.cu"});
  auto out = driver_->buffer(kMixedBytes);
  const unsigned char a = 1, c = 3, f = 6;
  const auto b = counting<Sixteen>(20);
  const auto d = counting<std::uint64_t>(40);
  const auto e = counting<Wide>(60);
  auto launch = launches().prepare(echo, {}, a, b, c, d, e, f, out.address());
  ASSERT_TRUE(launch) << message_of(launch);
  std::vector<unsigned char> expected;
  append(expected, a);
  append(expected, b);
  append(expected, c);
  append(expected, d);
  append(expected, e);
  append(expected, f);
  ASSERT_EQ(expected.size(), kMixedBytes);
  expect_by_every_route(echo, *launch, out, expected, 1);
}

TEST_F(LaunchArgumentsGpu, T26AFirstArgumentAlignedTo128) {
  const auto echo = kernel({.name = "aligned", .source = "aligned.cu"});
  auto out = driver_->buffer(129);
  const auto a = counting<Aligned>(9);
  const unsigned char b = 200;
  auto launch = launches().prepare(echo, {}, a, b, out.address());
  ASSERT_TRUE(launch) << message_of(launch);
  std::vector<unsigned char> expected;
  append(expected, a);
  append(expected, b);
  expect_by_every_route(echo, *launch, out, expected, 1);
  const auto other = counting<Aligned>(77);
  ASSERT_TRUE(launch->set_argument(0, other));
  expected.clear();
  append(expected, other);
  append(expected, b);
  expect_by_every_route(echo, *launch, out, expected, 1);
}

template <std::size_t kBytes>
struct Block {
  unsigned char bytes[kBytes - 8];
};

template <std::size_t kBytes>
KernelSpec block_spec() {
  return {.name = "block", .source = "block.cu", .options = {"-DBYTES=" + std::to_string(kBytes)}};
}

TEST_F(LaunchArgumentsGpu, T26EverySizeUpToTheDriversLimit) {
  const auto run = [&]<std::size_t kBytes>(std::integral_constant<std::size_t, kBytes>) {
    const auto echo = kernel(block_spec<kBytes>());
    auto out = driver_->buffer(kBytes);
    const auto block = counting<Block<kBytes>>(static_cast<unsigned char>(kBytes));
    auto launch = launches().prepare(echo, {.block_threads = {128}}, out.address(), block);
    ASSERT_TRUE(launch) << message_of(launch);
    std::vector<unsigned char> expected;
    append(expected, block);
    expect_by_every_route(echo, *launch, out, expected, 128);
  };
  run(std::integral_constant<std::size_t, 4095>());
  run(std::integral_constant<std::size_t, 4096>());
  run(std::integral_constant<std::size_t, 4097>());
  run(std::integral_constant<std::size_t, 32764>());
  const auto refused = runtime_->get(id_of(block_spec<32765>()));
  EXPECT_EQ(refused.error().code(), ErrorCode::compile_failed);
  EXPECT_NE(std::string(refused.error().detail()).find("32764"), std::string::npos)
      << refused.error().detail();
}

TEST_F(LaunchArgumentsGpu, T26WrongCountsAndSizesAreRefused) {
  const auto echo = kernel({.name = "aligned", .source = "aligned.cu"});
  const auto a = counting<Aligned>(0);
  const unsigned char b = 0;
  const std::uint64_t out = 0;
  EXPECT_NE(message_of(launches().prepare(echo, {}, a, b)).find("2 arguments given"),
            std::string::npos);
  EXPECT_NE(message_of(launches().prepare(echo, {}, a, b, out, out)).find("4 arguments given"),
            std::string::npos);
  EXPECT_NE(message_of(launches().prepare(echo, {}, a, 1, out)).find("argument 1 has 4 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln::test
