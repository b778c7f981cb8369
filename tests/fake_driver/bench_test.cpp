// Device timing of the harness against the fake driver, which does copies and fills but runs no
// kernel, and whose clock counts launches.
#include "kiln/bench.hpp"

#include "fake_driver/fixture.hpp"
#include "kernel_src/benches.hpp"
#include "kernel_src/kernels.hpp"

namespace kiln::test {
namespace {

using bench::Buffer;
using bench::CompareOptions;
using bench::Device;
using bench::DeviceArm;
using bench::L2;
using bench::Verdict;

constexpr CompareOptions kFew{.claim = bench::Claim::same, .rounds = 8, .warmup_rounds = 1};

class Bench : public FakeDriverFixture {
 protected:
  void SetUp() override {
    FakeDriverFixture::SetUp();
    if (IsSkipped()) return;
    runtime_.emplace(open());
    auto device = Device::open(*runtime_);
    ASSERT_TRUE(device) << message_of(device);
    device_.emplace(*std::move(device));
  }
  void TearDown() override {
    device_.reset();
    runtime_.reset();
  }

  /// Copies `values` into an output; right where they are 1, 2, 3, 4.
  DeviceArm copier(std::string name, const std::vector<unsigned>& values) {
    auto from = *device_->upload(values);
    auto to = *device_->allocate(values.size() * sizeof(unsigned));
    return {.name = std::move(name),
            .enqueue = [this, from, to](CUstream stream) -> Status {
              ++enqueued_;
              static const auto copy = reinterpret_cast<decltype(&::cuMemcpyDtoDAsync)>(
                  ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), "cuMemcpyDtoDAsync_v2"));
              return copy(address(to), address(from), to.bytes(), stream) == CUDA_SUCCESS
                         ? Status{}
                         : Error(ErrorCode::driver_failed, "copy");
            },
            .check = [this, to]() -> Status {
              ++checked_;
              std::vector<unsigned> got(4);
              if (auto status = to.read(std::as_writable_bytes(std::span(got))); !status)
                return status;
              return got == std::vector<unsigned>{1, 2, 3, 4}
                         ? Status{}
                         : Error(ErrorCode::invalid_argument, "got " + std::to_string(got[3]));
            },
            .outputs = {to}};
  }
  static CUdeviceptr address(const Buffer& buffer) {
    return reinterpret_cast<CUdeviceptr>(buffer.data());
  }

  std::optional<Runtime> runtime_;
  std::optional<Device> device_;
  int enqueued_ = 0;
  int checked_ = 0;
};

bool says(const bench::Comparison& comparison, std::string_view text) {
  for (const auto& fault : comparison.last().faults)
    if (fault.find(text) != std::string::npos) return true;
  return false;
}

TEST_F(Bench, WarmSamplesAreReplaysOfAGraphBetweenEvents) {
  const auto one = copier("one", {1, 2, 3, 4});
  const auto other = copier("other", {1, 2, 3, 4});
  const auto before = driver_.calls("cuGraphLaunch");
  const auto comparison =
      bench::compare_device(*device_, one, other, {.calls = 5, .replays = 4}, kFew);
  ASSERT_TRUE(comparison) << message_of(comparison);
  EXPECT_EQ(comparison->baseline, "one");
  EXPECT_EQ(comparison->candidate, "other");
  // Of each arm once outside of the capture and five times inside.
  EXPECT_EQ(enqueued_, 2 * (1 + 5));
  // A microsecond a graph launch, four of which are timed and hold five calls each.
  EXPECT_NEAR(comparison->last().figures.baseline.median, 4.0 / (4 * 5), 1e-6);
  EXPECT_NEAR(comparison->last().figures.ratio, 1, 1e-6);
  // There is no NVML here, so the clock is not known: refused after the one retry.
  EXPECT_EQ(comparison->verdict, Verdict::refused);
  EXPECT_TRUE(says(*comparison, "the SM clock is not known")) << comparison->last().faults.front();
  EXPECT_EQ(comparison->last().faults.size(), 1u);
  ASSERT_EQ(comparison->attempts.size(), 2u);
  EXPECT_EQ(checked_, 2 * 4);
  // Attempts of 4 checks and 9 rounds of 4 samples of 1 + 4 replays.
  EXPECT_EQ(driver_.calls("cuGraphLaunch") - before, 2u * (4 + 9 * 4 * 5));
}

TEST_F(Bench, ColdSamplesFlushBeforeEachCall) {
  KILN_REQUIRES_NVRTC();
  // Little to fill and read on a processor.
  driver_.set_device_attribute(0, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 65536);
  auto small = Device::open(*runtime_);
  ASSERT_TRUE(small) << message_of(small);
  device_.emplace(*std::move(small));
  const auto one = copier("one", {1, 2, 3, 4});
  driver_.forget();
  const auto comparison =
      bench::compare_device(*device_, one, one, {.l2 = L2::cold, .calls = 3}, kFew);
  ASSERT_TRUE(comparison) << message_of(comparison);
  EXPECT_FALSE(comparison->last().wrong_output);
  EXPECT_NEAR(comparison->last().figures.baseline.median, 1, 1e-6) << "events of one call";
  // The flush reads by a kernel; it is in the graph once for each call.
  std::size_t captured = 0;
  for (const auto& launch : driver_.launches())
    captured += launch.origin == fake_driver::Origin::captured;
  EXPECT_EQ(captured, 2u * 3u);
}

TEST_F(Bench, AWrongOutputIsFoundInWhatTheTimedGraphWrote) {
  const auto good = copier("good", {1, 2, 3, 4});
  const auto bad = copier("bad", {1, 2, 3, 5});
  const auto comparison = bench::compare_device(*device_, good, bad, {}, kFew);
  ASSERT_TRUE(comparison) << message_of(comparison);
  EXPECT_EQ(comparison->verdict, Verdict::refused);
  EXPECT_TRUE(says(*comparison, "the candidate's output is wrong: got 5"));
  EXPECT_FALSE(says(*comparison, "the baseline's"));
  EXPECT_EQ(comparison->attempts.size(), 1u);
}

TEST_F(Bench, AnArmThatWritesNothingLeavesThePoison) {
  const auto good = copier("good", {1, 2, 3, 4});
  auto idle = copier("idle", {1, 2, 3, 4});
  idle.enqueue = [](CUstream) { return Status{}; };
  const auto comparison = bench::compare_device(*device_, good, idle, {}, kFew);
  ASSERT_TRUE(comparison) << message_of(comparison);
  EXPECT_TRUE(says(*comparison, "output is wrong: got " + std::to_string(0xa5a5a5a5u)))
      << comparison->last().faults.front();
}

TEST_F(Bench, ParityComparesTheBytesOfBothArms) {
  const auto good = copier("good", {1, 2, 3, 4});
  auto other = copier("other", {1, 2, 7, 4});
  other.check = [] { return Status{}; };
  auto options = kFew;
  const auto unasked = bench::compare_device(*device_, good, other, {}, options);
  ASSERT_TRUE(unasked);
  EXPECT_FALSE(unasked->last().wrong_output);
  options.bitwise_parity = true;
  const auto asked = bench::compare_device(*device_, good, other, {}, options);
  ASSERT_TRUE(asked);
  EXPECT_TRUE(says(*asked, "output 0 at byte 8 is 3, then 7")) << asked->last().faults.front();
}

TEST_F(Bench, IncompleteArmsAndFailingOnesAreErrors) {
  const auto good = copier("good", {1, 2, 3, 4});
  auto bad = good;
  bad.outputs.clear();
  EXPECT_EQ(bench::compare_device(*device_, good, bad, {}, kFew).status().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(bench::compare_device(*device_, good, good, {.calls = 0}, kFew).status().code(),
            ErrorCode::invalid_argument);
  bad = good;
  bad.enqueue = [](CUstream) -> Status { return Error(ErrorCode::unsupported, "not here"); };
  EXPECT_EQ(message_of(bench::compare_device(*device_, good, bad, {}, kFew)), "not here");
  driver_.fail("cuGraphLaunch", CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(bench::compare_device(*device_, good, good, {}, kFew).status().code(),
            ErrorCode::driver_failed);
}

TEST_F(Bench, BuffersRefuseWhatDoesNotFit) {
  const auto buffer = *device_->allocate(16);
  std::vector<std::byte> bytes(16);
  EXPECT_TRUE(buffer.fill(std::byte{7}));
  EXPECT_TRUE(buffer.read(std::span(bytes).first(8), 8));
  EXPECT_EQ(bytes[7], std::byte{7});
  EXPECT_EQ(buffer.read(bytes, 1).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(buffer.write(bytes, 17).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(device_->allocate(0)->data(), nullptr);
  EXPECT_EQ(device_->name(), "NVIDIA H200 (fake 0)");
}

// No kernel runs here, so every problem must be refused: its check sees that nothing was written.
TEST_F(Bench, EveryKernelsBenchmarkPreparesAndChecksItsOutputs) {
  KILN_REQUIRES_NVRTC();
  ASSERT_TRUE(kernels::add_sources(*runtime_));
  for (const auto& known : kernels::kernel_benches()) {
#ifdef KILN_SANITIZE
    if (known.name != "dsv41_kv_insert") continue;  // the others' host arithmetic takes a minute
#endif
    for (std::size_t problem = 0; problem < known.problems.size(); ++problem)
      for (const std::uint64_t tokens : {1u, 8u, 65u}) {
        // Each of its tokens is a request of thousands of keys: the least of them is enough.
        const bool of_requests = known.name == "kimi_k3_mla_attend";
        if (of_requests && (tokens != 1 || problem + 1 != known.problems.size())) continue;
        // Its programs take seconds to compile, and differ in numbers only.
        if (known.name == "dsv41_mega_decode" && problem != 0) continue;
        SCOPED_TRACE(std::string(known.name) + ", " + std::string(known.problems[problem]));
        const auto made = known.make(*device_, problem, tokens);
        ASSERT_TRUE(made) << message_of(made);
        const auto arm = made->arm(*runtime_, "arm");
        ASSERT_TRUE(arm) << message_of(arm);
        const auto comparison = bench::compare_device(*device_, *arm, *arm, {}, kFew);
        ASSERT_TRUE(comparison) << message_of(comparison);
        EXPECT_TRUE(comparison->last().wrong_output);
        // Nothing runs here, so the outputs hold what the harness filled them with.
        const auto* what = known.name == "dsv41_kv_insert" ? "is 165 for"
                           : of_requests                   ? "off; 0.01 + 2 % at most"
                                                           : "off in the Frobenius norm";
        EXPECT_TRUE(says(*comparison, what)) << comparison->last().faults.front();
      }
  }
}

}  // namespace
}  // namespace kiln::test
