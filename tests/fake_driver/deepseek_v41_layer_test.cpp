// The attention layer of DeepSeek-V4.1: what each step of it hands to the driver.
#include "deepseek_v41_layer.hpp"

#include <set>
#include <utility>

namespace kiln::test {
namespace {

using fake_driver::Launch;
using kernels::deepseek_v41::DecodeKernel;
using kernels::deepseek_v41::Refusal;

constexpr unsigned kInsertThreads = kernels::dsv41_kv_insert::kBlockThreads;
// What tells the two decode programs apart: the shared memory of a block.
constexpr unsigned kMegaBytes = kernels::dsv41_decode::mega::Layout::bytes;
bool is_mega(const Launch& launch) {
  return launch.block[0] != kInsertThreads && launch.shared_bytes == kMegaBytes;
}
bool is_swapab(const Launch& launch) {
  return launch.block[0] != kInsertThreads && launch.shared_bytes != kMegaBytes;
}

class DeepseekV41Steps : public DeepseekV41Fixture {
 protected:
  /// What a step of `launches` launches.
  std::vector<Launch> run(StepLaunches& launches) {
    driver_.forget();
    const auto inserted = launches.insert(nullptr);
    EXPECT_TRUE(inserted) << message_of(inserted);
    const auto attended = launches.attend(nullptr);
    EXPECT_TRUE(attended) << message_of(attended);
    return driver_.launches();
  }
  static unsigned cluster_of(const Launch& launch) {
    const auto* cluster = launch.attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    return cluster == nullptr ? 1 : cluster->clusterDim.x;
  }
};

TEST_F(DeepseekV41Steps, AreCacheWritesThenAttentionAndNothingIsCompiledOrLoadedLate) {
  const auto layer = layer_of({.tp = 4, .ratio = 2});
  warm_up();
  const auto warm = runtime_->counters();
  EXPECT_EQ(warm.compiles, 4u);
  EXPECT_EQ(warm.module_loads, 4u);

  auto launches = layer.prepare(step_of(1));
  ASSERT_TRUE(launches) << message_of(launches);
  for (std::uint64_t tokens = 1; tokens <= 70; ++tokens) {
    SCOPED_TRACE(tokens);
    Step step = step_of(tokens);
    step.positions += tokens;  // another buffer in each step
    ASSERT_TRUE(layer.update(*launches, step));
    const bool swapab = tokens <= 64;
    EXPECT_EQ(launches->choice().kernel, swapab ? DecodeKernel::swapab : DecodeKernel::mega);
    EXPECT_EQ(launches->choice().refusals.has(Refusal::tokens), !swapab);
    const auto seen = run(*launches);
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_EQ(seen[0].block[0], kInsertThreads);
    EXPECT_EQ(seen[1].block[0], kInsertThreads);
    EXPECT_TRUE(swapab ? is_swapab(seen[2]) : is_mega(seen[2]));
    EXPECT_EQ(seen[2].grid[1], tokens);
    EXPECT_EQ(seen[2].grid[0], cluster_of(seen[2]));
    for (const Launch& launch : seen) {
      EXPECT_FALSE(launch.loaded_module);
      EXPECT_NE(launch.attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION), nullptr);
    }
    const auto swa = seen[0].argument<InsertArgs>(0);
    const auto compressed = seen[1].argument<InsertArgs>(0);
    const auto attention = seen[2].argument<DecodeArgs>(0);
    EXPECT_EQ(swa.query, step.query);
    EXPECT_EQ(swa.padded_query, step.padded_query);
    EXPECT_EQ(swa.rows, step.swa.rows);
    EXPECT_EQ(swa.slots, step.swa.row_slots);
    EXPECT_EQ(swa.cache, step.swa.base);
    EXPECT_EQ(compressed.query, nullptr);
    EXPECT_EQ(compressed.rows, step.compressed.rows);
    EXPECT_EQ(compressed.slots, step.compressed.row_slots);
    EXPECT_EQ(compressed.cache, step.compressed.base);
    EXPECT_EQ(compressed.cache_slots, 640u);  // 10 pages of 64
    for (const InsertArgs& args : {swa, compressed}) {
      EXPECT_EQ(args.positions, step.positions);
      EXPECT_EQ(args.cos_sin, step.cos_sin);
      EXPECT_EQ(args.rope_positions, step.rope_positions);
      EXPECT_EQ(args.tokens, tokens);
    }
    EXPECT_EQ(attention.query, step.padded_query);
    EXPECT_EQ(attention.positions, step.positions);
    EXPECT_EQ(attention.cos_sin, step.cos_sin);
    EXPECT_EQ(attention.sinks, step.sinks);
    EXPECT_EQ(attention.rope_positions, step.rope_positions);
    EXPECT_EQ(attention.swa.base, step.swa.base);
    EXPECT_EQ(attention.swa.slots, step.swa.slots);
    EXPECT_EQ(attention.swa.lengths, step.swa.lengths);
    EXPECT_EQ(attention.swa.cache_slots, 1280u);
    EXPECT_EQ(attention.compressed.base, step.compressed.base);
    EXPECT_EQ(attention.compressed.slots, step.compressed.slots);
    EXPECT_EQ(attention.compressed.lengths, step.compressed.lengths);
    EXPECT_EQ(attention.compressed.cache_slots, 640u);
    EXPECT_EQ(attention.output, step.output);
    EXPECT_EQ(static_cast<void*>(attention.output_scales), step.output_scales);
    EXPECT_EQ(attention.scale_group_stride_words, step.scale_group_stride_words);
    EXPECT_EQ(attention.scale_column_stride_words, step.scale_column_stride_words);
  }
  EXPECT_EQ(runtime_->counters().compiles, warm.compiles);
  EXPECT_EQ(runtime_->counters().module_loads, warm.module_loads);
}

TEST_F(DeepseekV41Steps, OfFewTokensHaveClustersOfTenBlocksWhereTheDeviceHoldsOne) {
  for (const auto& [multiprocessors, few] : {std::pair{132, 10u}, std::pair{8, 8u}}) {
    SCOPED_TRACE(multiprocessors);
    driver_.set_device_attribute(0, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, multiprocessors);
    runtime_.emplace(open());
    add_programs();
    const auto layer = layer_of({.tp = 4});
    auto launches = layer.prepare(step_of(1));
    ASSERT_TRUE(launches) << message_of(launches);
    EXPECT_EQ(cluster_of(run(*launches).back()), few);
    for (const auto& [tokens, blocks] :
         {std::pair{8u, 8u}, std::pair{16u, 5u}, std::pair{7u, few}}) {
      const auto updated = layer.update(*launches, step_of(tokens));
      ASSERT_TRUE(updated) << message_of(updated);
      const Launch attention = run(*launches).back();
      EXPECT_EQ(cluster_of(attention), blocks) << tokens;
      EXPECT_EQ(attention.grid[0], blocks) << tokens;
      EXPECT_EQ(attention.grid[1], tokens);
    }
  }
}

TEST_F(DeepseekV41Steps, StridesReachTheKernels) {
  const auto layer = layer_of({.tp = 4});
  Step step = step_of(3);
  step.query_stride_bytes = 16 * 1024 + 16;
  step.output_stride_bytes = 32768 + 16;
  step.swa.input_stride_bytes = 1024 + 16;
  step.swa.row_stride_bytes = 528 + 16;
  step.swa.page_stride_bytes = 128 * 544;
  step.compressed.input_stride_bytes = 1024 + 32;
  step.compressed.row_stride_bytes = 528 + 32;
  step.compressed.page_stride_bytes = 128 * 560;
  auto launches = layer.prepare(step);
  ASSERT_TRUE(launches) << message_of(launches);
  const auto seen = run(*launches);
  ASSERT_EQ(seen.size(), 3u);
  const auto swa = seen[0].argument<InsertArgs>(0);
  const auto compressed = seen[1].argument<InsertArgs>(0);
  const auto attention = seen[2].argument<DecodeArgs>(0);
  EXPECT_EQ(swa.query_stride_bytes, step.query_stride_bytes);
  EXPECT_EQ(swa.input_stride_bytes, step.swa.input_stride_bytes);
  EXPECT_EQ(swa.row_stride_bytes, step.swa.row_stride_bytes);
  EXPECT_EQ(swa.page_stride_bytes, step.swa.page_stride_bytes);
  EXPECT_EQ(compressed.input_stride_bytes, step.compressed.input_stride_bytes);
  EXPECT_EQ(compressed.row_stride_bytes, step.compressed.row_stride_bytes);
  EXPECT_EQ(compressed.page_stride_bytes, step.compressed.page_stride_bytes);
  EXPECT_EQ(attention.output_stride_bytes, step.output_stride_bytes);
  EXPECT_EQ(attention.swa.row_stride_bytes, step.swa.row_stride_bytes);
  EXPECT_EQ(attention.swa.page_stride_bytes, step.swa.page_stride_bytes);
  EXPECT_EQ(attention.compressed.row_stride_bytes, step.compressed.row_stride_bytes);
  EXPECT_EQ(attention.compressed.page_stride_bytes, step.compressed.page_stride_bytes);
}

TEST_F(DeepseekV41Steps, OfALayerThatReadsAnothersCacheWriteOnlyItsWindow) {
  const auto layer = layer_of({.tp = 4});
  Step step = step_of(1);
  step.compressed.rows = nullptr;
  auto launches = layer.prepare(step);
  ASSERT_TRUE(launches) << message_of(launches);
  const auto seen = run(*launches);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].argument<InsertArgs>(0).cache, step.swa.base);
  EXPECT_TRUE(is_swapab(seen[1]));
  EXPECT_NE(message_of(layer.update(*launches, step_of(1))).find("compressed.rows is given"),
            std::string::npos);
  // And one that writes cannot leave it out.
  auto writing = layer.prepare(step_of(1));
  ASSERT_TRUE(writing) << message_of(writing);
  EXPECT_NE(message_of(layer.update(*writing, step))
                .find("deepseek_v41: step.compressed: dsv41_kv_insert: rows is null"),
            std::string::npos);
}

// As where an engine's list of layers, each with its launches, is off by one.
TEST_F(DeepseekV41Steps, OfAnotherLayersLaunchesAreRefusedAndNothingIsLaunched) {
  const auto layer = layer_of({.tp = 4, .ratio = 1});
  const auto halved = layer_of({.tp = 4, .ratio = 2});
  auto launches = layer.prepare(step_of(1));
  ASSERT_TRUE(launches) << message_of(launches);
  EXPECT_EQ(run(*launches).size(), 3u);
  const auto launches_nothing = [&](StepLaunches& refused) {
    driver_.forget();
    const auto inserted = refused.insert(nullptr);
    const auto attended = refused.attend(nullptr);
    EXPECT_EQ(inserted.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(attended.code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(attended).find("update() or prepare()"), std::string::npos)
        << message_of(attended);
    EXPECT_TRUE(driver_.launches().empty());
  };
  const auto updated = halved.update(*launches, step_of(1));
  EXPECT_NE(message_of(updated).find("ratio is 1; this layer's is 2"), std::string::npos)
      << message_of(updated);
  launches_nothing(*launches);
  ASSERT_TRUE(layer.update(*launches, step_of(2)));
  EXPECT_EQ(run(*launches).size(), 3u);
  // Half of a step is no step: the window's writer takes this one, attention does not.
  Step wrong = step_of(3);
  wrong.output = nullptr;
  EXPECT_NE(message_of(layer.update(*launches, wrong)).find("output is null"), std::string::npos);
  launches_nothing(*launches);
  EXPECT_NE(message_of(layer.update(*launches, step_of(0)))
                .find("deepseek_v41: tokens is 0; launch nothing for a step without any"),
            std::string::npos);

  StepLaunches moved = *std::move(launches);
  ASSERT_TRUE(layer.update(moved, step_of(1)));
  StepLaunches none;
  for (auto* empty : {&none, &*launches}) {
    launches_nothing(*empty);
    EXPECT_NE(message_of(layer.update(*empty, step_of(1))).find("launches are empty"),
              std::string::npos);
  }
}

TEST_F(DeepseekV41Steps, WithoutACompressedCacheAreOneWriteAndMega) {
  const auto layer = layer_of({.tp = 4, .ratio = 0});
  Step step = step_of(1);
  EXPECT_FALSE(layer.prepare(step)) << "a compressed cache is given";
  step.compressed = {};
  auto launches = layer.prepare(step);
  ASSERT_TRUE(launches) << message_of(launches);
  const auto seen = run(*launches);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_TRUE(is_mega(seen[1]));
  EXPECT_TRUE(launches->choice().refusals.has(Refusal::no_compressed_cache));
}

TEST_F(DeepseekV41Steps, OfABatchInvariantLayerAlwaysSplitATokenAlike) {
  for (const bool invariant : {false, true})
    for (const unsigned ratio : {0u, 1u}) {
      const auto layer =
          layer_of({.tp = invariant ? 4u : 8u, .ratio = ratio, .batch_invariant = invariant});
      Step step = step_of(1);
      if (ratio == 0) step.compressed = {};
      auto launches = layer.prepare(step);
      ASSERT_TRUE(launches) << message_of(launches);
      std::set<unsigned> clusters;
      for (const std::uint64_t tokens : {1u, 16u, 17u, 32u, 33u, 64u, 512u}) {
        step.tokens = tokens;
        ASSERT_TRUE(layer.update(*launches, step));
        const auto launch = run(*launches).back();
        EXPECT_TRUE(is_mega(launch));
        clusters.insert(cluster_of(launch));
      }
      // A window of two tiles can be split in one way only.
      EXPECT_EQ(clusters.size() == 1, invariant || ratio == 0);
    }
}

TEST_F(DeepseekV41Steps, OfAWidenedWindowHaveAKernelOfTheirOwn) {
  // Lists so short that a token's tiles show in its cluster.
  const auto layer = layer_of({.tp = 4, .window = 64, .index_topk = 64, .widened_window = 256});
  Step step = step_of(1);
  step.swa_slots = 64;
  auto launches = layer.prepare(step);
  ASSERT_TRUE(launches) << message_of(launches);
  EXPECT_TRUE(is_swapab(run(*launches).back()));
  step.swa_slots = 256;
  ASSERT_TRUE(layer.update(*launches, step));
  auto launch = run(*launches).back();
  EXPECT_TRUE(is_mega(launch));
  EXPECT_EQ(cluster_of(launch), 5u);
  step.swa_slots = 64;
  step.tokens = 512;
  ASSERT_TRUE(layer.update(*launches, step));
  launch = run(*launches).back();
  EXPECT_TRUE(is_mega(launch));
  EXPECT_EQ(cluster_of(launch), 2u);
  // Neither launch is made over for the other: their clusters stay, so the driver is not asked.
  driver_.forget();
  for (const bool wide : {true, false, true}) {
    step.swa_slots = wide ? 256 : 64;
    step.tokens = wide ? 1 : 512;
    ASSERT_TRUE(layer.update(*launches, step));
  }
  EXPECT_EQ(driver_.calls("cuOccupancyMaxActiveClusters"), 0u);
  step.swa_slots = 128;
  EXPECT_FALSE(layer.update(*launches, step));
}

}  // namespace
}  // namespace kiln::test
