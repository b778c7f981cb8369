// The attention layer of DeepSeek-V4.1 on the device: padded steps in a captured graph, and a
// batch-invariant layer to the bit.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "dsv41_decode_device.hpp"
#include "kernel_src/layers/deepseek_v41/decode_attention.hpp"
#include "support/gpu_test.hpp"

namespace kiln::kernels::deepseek_v41 {
namespace {

using dsv41_decode::test::Bytes;
using dsv41_decode::test::Choices;
using dsv41_decode::test::DeviceCall;
using dsv41_decode::test::HostCall;
using dsv41_decode::test::Lengths;
using kiln::test::message_of;

class DeepseekV41LayerGpu : public kiln::test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runtime_) return;  // the test is being skipped
    ASSERT_TRUE(add_sources(*runtime_));
  }

  DecodeAttention create(const LayerOptions& options) {
    auto layer = DecodeAttention::create(*runtime_, options, *runtime_->device());
    EXPECT_TRUE(layer) << message_of(layer);
    return *std::move(layer);
  }

  /// The first `tokens` of `call` as a step that writes nothing to the caches; `query` is the one
  /// before it is padded.
  static Step step_of(const DeviceCall& call, std::size_t tokens, const void* query,
                      const std::int64_t* no_slots) {
    const auto& from = call.arguments;
    const auto cache = [&](const dsv41_decode::test::DeviceBuffer& buffer) {
      return StepCache{
          .base = buffer.pointer(), .rows = query, .row_slots = no_slots};  // 512 of any bf16
    };
    Step step{.tokens = tokens,
              .query = query,
              .padded_query = const_cast<void*>(from.query),
              .positions = from.positions,
              .cos_sin = from.cos_sin,
              .rope_positions = from.rope_positions,
              .sinks = from.sinks,
              .swa = cache(call.swa_cache),
              .compressed = cache(call.compressed_cache),
              .output = from.output,
              .output_scales = from.output_scales,
              .output_stride_bytes = from.output_stride_bytes,
              .scale_group_stride_words = from.scale_group_stride_words,
              .scale_column_stride_words = from.scale_column_stride_words};
    step.swa.pages = from.swa_pages;
    step.swa.page_stride_bytes = from.swa_page_stride_bytes;
    step.swa.row_stride_bytes = from.swa_row_stride_bytes;
    step.swa.slots = from.swa_slots;
    step.swa.lengths = from.swa_lengths;
    step.compressed.pages = from.compressed_pages;
    step.compressed.page_stride_bytes = from.compressed_page_stride_bytes;
    step.compressed.row_stride_bytes = from.compressed_row_stride_bytes;
    step.compressed.slots = from.compressed_slots;
    step.compressed.lengths = from.compressed_lengths;
    return step;
  }

  static std::vector<u16> without_padding(HostCall& call) {
    std::vector<u16> query;
    for (std::size_t token = 0; token < call.tokens; ++token)
      for (std::size_t head = 0; head < call.key.heads; ++head)
        for (std::size_t dim = 0; dim < dsv41::kHeadDim; ++dim)
          query.push_back(call.query_at(token, head, dim));
    return query;
  }
};

const LayerOptions kLayer{.tp = 4, .record = Record::nvfp4};

Choices choices_of(const LayerOptions& layer, std::size_t tokens) {
  return {.key = decode_key(layer, layer.window), .tokens = tokens, .lengths = Lengths::partial};
}

TEST_F(DeepseekV41LayerGpu, APaddedStepInAGraphWritesItsLiveTokensAndNothingElse) {
  const auto layer = create(kLayer);
  ASSERT_TRUE(runtime_->warmup());
  const auto warm = runtime_->counters();
  const auto stream = driver_->stream();
  for (const std::size_t padded : {8u, 72u}) {
    SCOPED_TRACE(padded);
    const std::size_t live = padded - 3;
    const auto make = [&](unsigned seed) {
      HostCall call = make_call(choices_of(kLayer, padded), seed);
      for (std::size_t token = live; token < padded; ++token) call.positions[token] = -1;
      return call;
    };
    HostCall host = make(1);
    DeviceCall call(*driver_, host);
    auto query = driver_->upload(without_padding(host));
    const auto no_slots = driver_->upload(std::vector<std::int64_t>(padded, -1));
    auto launches =
        layer.prepare(step_of(call, padded, query.pointer(), no_slots.pointer<std::int64_t>()));
    ASSERT_TRUE(launches) << message_of(launches);
    EXPECT_EQ(launches->choice().kernel, padded == 8 ? DecodeKernel::swapab : DecodeKernel::mega);
    const auto& driver = driver_->functions();
    ASSERT_EQ(driver.cuStreamBeginCapture_(stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    EXPECT_TRUE(launches->insert(stream.handle()));
    EXPECT_TRUE(launches->attend(stream.handle()));
    CUgraph captured = nullptr;
    ASSERT_EQ(driver.cuStreamEndCapture_(stream.handle(), &captured), CUDA_SUCCESS);
    const kiln::test::Graph graph(driver_->shared_functions(), captured);
    for (const unsigned seed : {1u, 2u}) {
      host = make(seed);
      call.assign(host);
      query.assign(without_padding(host));
      call.query.fill(0xff);  // NaN, unless the step pads the query before it attends
      call.clear();
      graph.launch(stream);
      stream.synchronize();
      const Bytes bytes = call.bytes();
      expect_nothing_else_written(host, bytes);
      host.output = bytes.data;
      host.output_scales = bytes.scales;
      host.tokens = live;
      const auto want = reference(host.key, host.arguments());
      const auto got = decode_output(host.key, host.arguments());
      EXPECT_LT(dsv41_decode::relative_frobenius(got.values, want.values), 0.03);
    }
  }
  EXPECT_EQ(runtime_->counters().compiles, warm.compiles);
  EXPECT_EQ(runtime_->counters().module_loads, warm.module_loads);
}

TEST_F(DeepseekV41LayerGpu, ABatchInvariantLayerGivesATokenTheSameBitsInEveryStep) {
  constexpr std::size_t most = 64;
  LayerOptions options = kLayer;
  options.batch_invariant = true;
  const auto layer = create(options);
  HostCall host = make_call(choices_of(options, most), 3);
  DeviceCall call(*driver_, host);
  const auto query = driver_->upload(without_padding(host));
  const auto no_slots = driver_->upload(std::vector<std::int64_t>(most, -1));
  const auto step = [&](std::size_t tokens) {
    return step_of(call, tokens, query.pointer(), no_slots.pointer<std::int64_t>());
  };
  auto launches = layer.prepare(step(most));
  ASSERT_TRUE(launches) << message_of(launches);
  const auto run = [&](std::size_t tokens) {
    call.clear();
    EXPECT_TRUE(layer.update(*launches, step(tokens)));
    EXPECT_EQ(launches->choice().kernel, DecodeKernel::mega);
    EXPECT_TRUE(launches->insert(nullptr));
    EXPECT_TRUE(launches->attend(nullptr));
    return call.bytes();
  };
  call.clear();
  const Bytes untouched = call.bytes();
  const Bytes whole = run(most);
  EXPECT_FALSE(whole == untouched);
  for (const std::size_t tokens : {1u, 5u, 16u, 17u, 32u, 33u}) {
    SCOPED_TRACE(tokens);
    const Bytes bytes = run(tokens);
    host.tokens = tokens;
    expect_nothing_else_written(host, bytes);
    EXPECT_TRUE(written_of(host, bytes) == written_of(host, whole));
  }
}

}  // namespace
}  // namespace kiln::kernels::deepseek_v41
