// Kimi-K3 MLA on the device, with wgmma and with the products for every architecture: against the
// reference in double, and what must not change a single bit of its output.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel_src/kimi_k3_mla/reference.hpp"
#include "kernel_src/layers/kimi_k3/attention.hpp"
#include "kernel_src/shared/bf16.hpp"
#include "tests/gpu/kimi_k3_mla_changes.hpp"
#include "tests/gpu/kimi_k3_mla_device.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

std::string text_of(const Choices& choices, const Plan& plan, BackEnd back_end) {
  std::string text = std::to_string(choices.heads) + " heads, keys";
  for (const auto length : choices.lengths) text += " " + std::to_string(length);
  text += ", new tokens";
  for (const auto query : choices.queries) text += " " + std::to_string(query);
  return text + ", row tile " + std::to_string(plan.row_tile) + ", " +
         std::to_string(plan.num_split) + " splits, " + std::string(to_string(plan.reducer)) +
         (back_end == BackEnd::portable ? ", portable back-end" : "");
}

/// One driver and one runtime a back-end for all tests: instances take a second each to compile.
class KimiK3MlaGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto driver = CudaDriver::open();
    if (!driver) return;
    driver_.emplace(*std::move(driver));
    for (const BackEnd back_end : kBackEnds) {
      auto runtime = Runtime::open({});
      ASSERT_TRUE(runtime) << message_of(runtime);
      auto& opened = runtimes_.emplace(back_end, *std::move(runtime)).first->second;
      const auto added = add_sources_of(opened, back_end);
      ASSERT_TRUE(added) << message_of(added);
      auto attention = Attention::create(opened, all());
      ASSERT_TRUE(attention) << message_of(attention);
      attentions_.emplace(back_end, *std::move(attention));
      const auto report = opened.warmup();
      ASSERT_TRUE(report) << message_of(report);
      ASSERT_EQ(report->failed, 0u);
    }
  }
  static void TearDownTestSuite() {
    attentions_.clear();
    runtimes_.clear();
    driver_.reset();
  }
  void SetUp() override { KILN_REQUIRES_GPU(); }

  static Programs all() {
    return {.attend = {{16}, {32}, {48}, {64}, {96}, {128}}, .reduce = {{0}, {1}, {2}, {4}}};
  }

  static Plan plan_for(HostCall& host) {
    const auto call = check(host.arguments());
    EXPECT_TRUE(call) << message_of(call);
    const auto plan = kimi_k3_mla::plan(call->problem(), 132, kH200);
    EXPECT_TRUE(plan) << message_of(plan);
    return *plan;
  }

  static std::vector<u16> run(BackEnd back_end, HostCall& host) {
    const Plan plan = plan_for(host);
    DeviceCall call(*driver_, host, workspace_bytes(plan));
    launch(back_end, call, plan);
    return call.bytes();
  }
  static void launch(BackEnd back_end, DeviceCall& call, const Plan& plan) {
    auto launches = attentions_.at(back_end).prepare(call.arguments, plan);
    ASSERT_TRUE(launches) << message_of(launches);
    const auto launched = launches->launch(nullptr);
    ASSERT_TRUE(launched) << message_of(launched);
  }

  /// The rows that a call writes; all others must hold the pattern.
  static std::vector<u16> written_of(const HostCall& host, const std::vector<u16>& bytes) {
    const std::size_t written = host.written() * host.choices.heads * kLatentDim;
    EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(written), bytes.end(),
                            [](u16 value) { return value == kOutputPattern; }))
        << "rows of no request were written";
    return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(written)};
  }

  static Errors errors_against(HostCall& host, const std::vector<u16>& bytes, double absolute,
                               double relative) {
    const auto call = check(host.arguments());
    EXPECT_TRUE(call) << message_of(call);
    return errors_of(written_of(host, bytes), reference(*call), absolute, relative);
  }

  static inline std::optional<CudaDriver> driver_;
  static inline std::map<BackEnd, Runtime> runtimes_;
  static inline std::map<BackEnd, Attention> attentions_;
};

// Every row tile, every reducer, both routes, and the edges of tiles, pages and masks.
std::vector<Choices> shapes() {
  return {
      {.heads = 12, .lengths = {1, 200, 64}},
      {.heads = 96, .lengths = {1, 200, 64}},
      {.heads = 12, .lengths = {4096, 777, 65}},
      {.heads = 96, .lengths = {4096, 777, 65}},
      {.heads = 1, .lengths = {129, 3}},
      {.heads = 128, .lengths = {300}},
      {.heads = 7, .lengths = {1000, 128, 127}, .queries = {2, 1, 3}, .row_gap_bytes = 16},
      {.heads = 12, .lengths = {2000, 640, 90}, .queries = {4, 2, 1}, .page_gap_bytes = 48},
      {.heads = 12, .lengths = {1024, 300}, .queries = {5, 5}, .packed = false},
      {.heads = 96, .lengths = {513, 100}, .queries = {2, 1}, .table_gap = 5, .spare_tokens = 2},
      {.heads = 12, .lengths = {1097}, .queries = {97}},
      {.heads = 12, .lengths = {0, 5, 130, 64}, .queries = {1, 8, 0, 3}},
      {.heads = 12, .lengths = {9000}},
      {.heads = 96, .lengths = {8300, 700}, .queries = {1, 1}},
      {.heads = 12, .lengths = {8200, 100}, .queries = {8, 2}},
      {.heads = 12, .lengths = {8200, 0, 100}, .queries = {9, 2, 0}},
      {.heads = 96, .lengths = {8300, 700}, .queries = {2, 1}},
      {.heads = 12, .lengths = {600, 70}, .queries = {2, 1}, .split = 7},
      {.heads = 12, .lengths = {600, 70}, .queries = {6, 6}, .output_scale = 0.5f, .split = 2},
      {.heads = 12, .lengths = {700}, .split = 40},
  };
}

TEST_F(KimiK3MlaGpu, IsTheReferenceForEveryRowTileReducerAndRoute) {
  std::set<u32> row_tiles;
  std::set<Reducer> reducers;
  for (Choices choices : shapes())
    for (const float key_scale : {0.5f, 1.0f}) {
      choices.key_scale = key_scale;
      HostCall host = make_call(choices, 1);
      row_tiles.insert(plan_for(host).row_tile);
      reducers.insert(plan_for(host).reducer);
      for (const BackEnd back_end : kBackEnds) {
        SCOPED_TRACE(text_of(choices, plan_for(host), back_end));
        const auto bytes = run(back_end, host);
        const Errors errors = errors_against(host, bytes, 0.01, 0.02);
        EXPECT_TRUE(errors.finite);
        // Weights of one E4M3 term show where few keys count, the more the larger these are.
        const bool exact = attend::weight_terms(plan_for(host).row_tile) == 2;
        const bool many = *std::min_element(host.lengths.begin(), host.lengths.end()) >= 64;
        if (exact || (many && key_scale < 1)) {
          EXPECT_EQ(errors.mismatches, 0u) << errors.largest;
        }
        if (exact) {
          EXPECT_LE(errors.relative_l2, 0.005);
        }
        EXPECT_LE(errors.largest, 0.045);
        EXPECT_LE(errors.relative_l2, 0.025);
      }
    }
  EXPECT_EQ(row_tiles, (std::set<u32>{16, 32, 48, 64, 96, 128}));
  EXPECT_EQ(reducers.size(), 5u) << "none, w1, w2, w4 and cta";
}

TEST_F(KimiK3MlaGpu, CountsKeysFarBelowASinkWhereTheyAreMany) {
  for (const u32 split : {1u, 5u}) {
    HostCall host = make_call(
        {.heads = 2, .lengths = {32768}, .profile = Profile::mild_sink, .split = split}, 11);
    const Plan plan = plan_for(host);
    ASSERT_EQ(attend::weight_terms(plan.row_tile), 2u);
    const auto call = check(host.arguments());
    ASSERT_TRUE(call) << message_of(call);
    const auto want = reference_row(*call, 0, 0, 1);
    ASSERT_NEAR(want[0], 0.24, 0.02) << "a quarter comes from keys that weigh 2^-16.7 each";
    for (const BackEnd back_end : kBackEnds) {
      SCOPED_TRACE(text_of(host.choices, plan, back_end));
      EXPECT_NEAR(float_of_bf16(run(back_end, host)[kLatentDim]), want[0], 0.01);
    }
  }
}

TEST_F(KimiK3MlaGpu, SplitsTheLastItemsAlone) {
  // Two requests of two row tiles each; the first stays whole.
  HostCall host =
      make_call({.heads = 128, .lengths = {8300, 1000}, .queries = {2, 2}, .key_scale = 0.5f}, 10);
  Plan plan = plan_for(host);
  ASSERT_EQ(plan.route, Route::wide);
  ASSERT_EQ(plan.items, 4u);
  plan.unsplit_items = 1;
  plan.num_split = 3;
  plan.grid = {2 * (1 + 3 * 3), 1, 1};
  plan.reducer = Reducer::w2;
  plan.reduce_rows = 3 * 128;
  plan.reducer_grid = {3 * 128 / 4, 1, 1};
  for (const BackEnd back_end : kBackEnds) {
    DeviceCall call(*driver_, host, workspace_bytes(plan));
    launch(back_end, call, plan);
    const Errors errors = errors_against(host, call.bytes(), 0.01, 0.02);
    EXPECT_EQ(errors.mismatches, 0u) << errors.largest;
    EXPECT_TRUE(errors.finite);
  }
}

TEST_F(KimiK3MlaGpu, FollowsKeysThatOutweighAllOthers) {
  for (const Choices& choices :
       {Choices{.heads = 12, .lengths = {5000}},
        Choices{.heads = 12, .lengths = {704, 768, 800, 850, 864, 880, 890, 896}},
        Choices{.heads = 96, .lengths = {900, 2000}}, Choices{.heads = 96, .lengths = {9000}},
        Choices{.heads = 64, .lengths = {9000}, .queries = {2}}})
    for (const Profile profile :
         {Profile::sink_key, Profile::peaked, Profile::flat, Profile::rising}) {
      Choices profiled = choices;
      profiled.profile = profile;
      HostCall host = make_call(profiled, 2);
      for (const BackEnd back_end : kBackEnds) {
        SCOPED_TRACE(text_of(profiled, plan_for(host), back_end));
        const Errors errors = errors_against(host, run(back_end, host), 0.1, 0.1);
        EXPECT_TRUE(errors.finite);
        EXPECT_EQ(errors.mismatches, 0u) << errors.largest;
        EXPECT_LE(errors.relative_l2, 0.05);
      }
    }
}

TEST_F(KimiK3MlaGpu, WhatNoRequestNamesIsNeverLookedAt) {
  for (Choices choices : shapes()) {
    choices.unused = 0xff;
    choices.wild_entries = true;
    HostCall poisoned = make_call(choices, 3);
    choices.unused = 0;
    choices.wild_entries = false;
    HostCall clean = make_call(choices, 3);
    for (const BackEnd back_end : kBackEnds) {
      SCOPED_TRACE(text_of(choices, plan_for(clean), back_end));
      const auto bytes = run(back_end, poisoned);
      EXPECT_EQ(bytes, run(back_end, clean));
      EXPECT_EQ(written_of(poisoned, bytes), written_of(clean, run(back_end, clean)))
          << "a second run differs";
    }
  }
}

TEST_F(KimiK3MlaGpu, ARequestAloneIsTheRequestInABatch) {
  for (const u32 heads : {12u, 96u}) {
    const Choices choices{
        .heads = heads, .lengths = {1500, 333, 64}, .queries = {1, 1, 1}, .split = 3};
    HostCall together = make_call(choices, 4);
    for (const BackEnd back_end : kBackEnds) {
      const auto all = run(back_end, together);
      for (std::size_t request = 0; request < 3; ++request) {
        HostCall alone = together;
        for (std::size_t other = 0; other < 3; ++other)
          if (other != request) alone.lengths[other] = 0;
        const auto bytes = run(back_end, alone);
        const std::size_t row = heads * kLatentDim;
        EXPECT_TRUE(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(request * row),
                               bytes.begin() + static_cast<std::ptrdiff_t>((request + 1) * row),
                               all.begin() + static_cast<std::ptrdiff_t>(request * row)))
            << heads << " heads, request " << request;
      }
    }
  }
}

TEST_F(KimiK3MlaGpu, AReplayFollowsTablesLengthsAndStartsThatChangeInPlace) {
  auto stream = driver_->stream();
  for (const Choices& choices :
       {Choices{.heads = 12, .lengths = {900, 400, 64}, .queries = {2, 1, 2}},
        Choices{.heads = 96, .lengths = {700, 700}, .queries = {1, 1}},
        Choices{.heads = 96, .lengths = {9000, 8200}, .queries = {2, 1}}}) {
    HostCall first = make_call(choices, 5);
    Choices changed = choices;
    std::reverse(changed.lengths.begin(), changed.lengths.end());
    std::reverse(changed.queries.begin(), changed.queries.end());
    HostCall second = make_call(changed, 6);
    ASSERT_EQ(first.cache.size(), second.cache.size());
    const Plan plan = plan_for(first);
    for (const BackEnd back_end : kBackEnds) {
      SCOPED_TRACE(text_of(choices, plan, back_end));
      DeviceCall call(*driver_, first, workspace_bytes(plan));
      auto launches = attentions_.at(back_end).prepare(call.arguments, plan);
      ASSERT_TRUE(launches) << message_of(launches);
      const auto graph =
          driver_->capture(stream, [&] { ASSERT_TRUE(launches->launch(stream.handle())); });
      for (HostCall* host : {&first, &second, &first}) {
        call.assign(*host);
        graph.launch(stream);
        stream.synchronize();
        const auto replayed = call.bytes();
        EXPECT_EQ(replayed, run(back_end, *host));
        EXPECT_EQ(errors_against(*host, replayed, 0.045, 0.02).mismatches, 0u);
      }
    }
  }
}

TEST_F(KimiK3MlaGpu, NaNStaysWithTheRowsThatSeeIt) {
  const Choices choices{.heads = 12, .lengths = {700, 300}, .split = 3};
  HostCall host = make_call(choices, 7);
  const std::size_t row = 5;
  host.query[row * kKeyDim + 100] = 0x7f;
  host.key_at(1, 17)[500] = 0xff;
  for (const BackEnd back_end : kBackEnds) {
    const auto bytes = run(back_end, host);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      const std::size_t packed = at / kLatentDim;
      const float value = float_of_bf16(bytes[at]);
      ASSERT_EQ(value != value, packed == row || packed >= 12)
          << "packed row " << packed << ", dim " << at % kLatentDim;
    }
  }
}

TEST_F(KimiK3MlaGpu, IsTheSameWhicheverWarpsAreLate) {
  auto changed = Runtime::open({});
  ASSERT_TRUE(changed) << message_of(changed);
  const Status added = add_changed_sources(*changed, kWarpsComeLate);
  ASSERT_TRUE(added) << message_of(added);
  const auto late = Attention::create(*changed, all());
  ASSERT_TRUE(late) << message_of(late);
  const auto report = changed->warmup();
  ASSERT_TRUE(report) << message_of(report);
  ASSERT_EQ(report->failed, 0u);
  std::set<u32> row_tiles;
  for (const Choices& choices : shapes()) {
    HostCall host = make_call(choices, 2);
    const Plan plan = plan_for(host);
    row_tiles.insert(plan.row_tile);
    SCOPED_TRACE(text_of(choices, plan, BackEnd::own));
    const auto want = run(BackEnd::own, host);
    DeviceCall call(*driver_, host, workspace_bytes(plan));
    auto launches = late->prepare(call.arguments, plan);
    ASSERT_TRUE(launches) << message_of(launches);
    for (unsigned round = 0; round < 3; ++round) {
      call.output.assign(host.output);
      const Status launched = launches->launch(nullptr);
      ASSERT_TRUE(launched) << message_of(launched);
      ASSERT_EQ(call.bytes(), want) << "round " << round;
    }
  }
  EXPECT_EQ(row_tiles.size(), 6u);
}

TEST_F(KimiK3MlaGpu, TheLayerTakesEveryStepWithoutACompile) {
  auto runtime = Runtime::open({});
  ASSERT_TRUE(runtime) << message_of(runtime);
  ASSERT_TRUE(add_sources(*runtime));
  const auto device = runtime->device();
  ASSERT_TRUE(device) << message_of(device);
  auto layer = kimi_k3::MlaAttention::create(
      *runtime, {.tp = 8, .max_batch = 4, .max_query = 6, .max_keys = 20480}, *device);
  ASSERT_TRUE(layer) << message_of(layer);
  ASSERT_TRUE(runtime->warmup());
  const auto warm = runtime->counters();
  HostCall shape = make_call({.heads = 12, .lengths = {64}}, 8);
  DeviceCall any(*driver_, shape, layer->workspace_bytes());
  auto launches = layer->prepare(any.arguments);
  ASSERT_TRUE(launches) << message_of(launches);
  for (const Choices& choices :
       {Choices{.heads = 12, .lengths = {100}}, Choices{.heads = 12, .lengths = {20000, 64}},
        Choices{.heads = 12, .lengths = {900, 400}, .queries = {3, 2}},
        Choices{.heads = 12, .lengths = {9000, 400, 6}, .queries = {6, 2, 1}}}) {
    HostCall host = make_call(choices, 9);
    DeviceCall call(*driver_, host, layer->workspace_bytes());
    const auto updated = layer->update(*launches, call.arguments);
    ASSERT_TRUE(updated) << message_of(updated);
    ASSERT_TRUE(launches->launch(nullptr));
    EXPECT_EQ(errors_against(host, call.bytes(), 0.045, 0.02).mismatches, 0u);
  }
  EXPECT_EQ(runtime->counters().compiles, warm.compiles);
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
