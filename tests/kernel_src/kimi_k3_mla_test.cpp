// How calls of Kimi-K3 MLA are shared out, as a table.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kimi_k3_mla/key.hpp"
#include "kernel_src/kimi_k3_mla/plan.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

using kiln::test::message_of;

Plan plan_for(const Problem& problem, u32 sm_count, const Constants& constants = kPublished) {
  const auto made = plan(problem, sm_count, constants);
  EXPECT_TRUE(made) << message_of(made);
  return made ? *made : Plan{};
}

struct Row {
  const char* name;
  Problem problem;
  Route route;
  u32 row_tile;
  const char* receipt;  // the reducer in the published receipt, taken at 148 SMs
  u32 split;            // what the planner takes there
  u64 unsplit_items;
  const char* reducer_at_132;
  u32 split_at_132;
};

constexpr auto kTiles = Route::row_tiles;
constexpr auto kWide = Route::wide;

// The 27 published rows, then the two coverage rows, which are taken to be of 8 requests.
const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"trace_h12_b1", {12, 1, 1, 76800}, kTiles, 16, "cta", 148, 0, "cta", 132},
      {"trace_h12_b2", {12, 2, 1, 77699}, kTiles, 16, "cta", 74, 0, "cta", 66},
      {"trace_h12_b3", {12, 3, 1, 261120}, kTiles, 16, "cta", 49, 0, "cta", 44},
      {"trace_h12_b4", {12, 4, 1, 268800}, kTiles, 16, "cta", 37, 0, "cta", 33},
      {"trace_h12_b5", {12, 5, 1, 276480}, kTiles, 16, "w4", 29, 0, "w4", 26},
      {"trace_h12_b6", {12, 6, 1, 467751}, kTiles, 16, "w4", 24, 0, "w4", 22},
      {"trace_h12_b7", {12, 7, 1, 299613}, kTiles, 16, "w4", 21, 0, "w4", 18},
      {"trace_h12_b8", {12, 8, 1, 342305}, kTiles, 16, "w4", 18, 0, "w4", 16},
      {"trace_h12_b9", {12, 9, 1, 348705}, kTiles, 16, "w4", 16, 0, "w4", 14},
      {"trace_h12_b10", {12, 10, 1, 474166}, kTiles, 16, "w4", 14, 0, "w4", 13},
      {"trace_h12_b11", {12, 11, 1, 474405}, kTiles, 16, "w4", 13, 0, "w4", 12},
      {"mirror_h96_b1", {96, 1, 1, 76800}, kWide, 128, "cta", 67, 0, "cta", 60},
      {"mirror_h96_b2", {96, 2, 1, 77699}, kWide, 128, "cta", 36, 0, "w4", 32},
      {"mirror_h96_b6", {96, 6, 1, 467751}, kWide, 128, "w2", 12, 0, "w2", 11},
      {"mirror_h96_b7", {96, 7, 1, 299613}, kWide, 128, "w2", 10, 0, "w2", 9},
      {"mirror_h96_b8", {96, 8, 1, 342305}, kWide, 128, "w2", 9, 0, "w2", 8},
      {"mtp_h12_b8_q2", {12, 8, 2, 342305}, kTiles, 32, "w4", 18, 0, "w4", 16},
      {"mtp_h12_b8_q4", {12, 8, 4, 342305}, kTiles, 48, "w2", 18, 0, "w2", 16},
      {"mtp_h12_b8_q8", {12, 8, 8, 342305}, kWide, 128, "w2", 9, 0, "w2", 8},
      {"mtp_h96_b8_q2", {96, 8, 2, 342305}, kWide, 128, "w1", 9, 0, "w1", 4},
      {"mtp_h96_b8_q4", {96, 8, 4, 342305}, kWide, 128, "w1", 3, 0, "w1", 11},
      {"mtp_h96_b8_q8", {96, 8, 8, 342305}, kWide, 128, "w1", 3, 0, "w1", 4},
      {"prefill_h12_b1_q2048", {12, 1, 2048, 131072}, kWide, 128, "w1", 5, 148, "none", 1},
      {"prefill_h12_b2_q512", {12, 2, 512, 32768}, kWide, 128, "w1", 3, 0, "w1", 2},
      {"prefill_h12_b4_q1024", {12, 4, 1024, 8192}, kWide, 128, "w1", 5, 370, "none", 1},
      {"prefill_h96_b1_q2048", {96, 1, 2048, 131072}, kWide, 128, "w1", 1, 0, "none", 1},
      {"prefill_h96_b2_q512", {96, 2, 512, 32768}, kWide, 128, "w1", 5, 740, "none", 1},
      {"mtp_h12_fixed_q5", {12, 8, 5, 342305}, kTiles, 64, "w2", 18, 0, "w2", 16},
      {"mtp_h96_fixed_q8_kv8000", {96, 8, 8, 8000}, kTiles, 96, "w1", 2, 0, "w1", 2},
  };
  return all;
}

// The one receipt whose plan has a single split: it names a reducer all the same.
constexpr std::string_view kNamesAReducerWithoutOne = "prefill_h96_b1_q2048";

TEST(KimiK3MlaPlan, GivesTheReducerOfEachPublishedReceipt) {
  ASSERT_EQ(rows().size(), 29u);
  for (const Row& row : rows()) {
    const Plan made = plan_for(row.problem, 148);
    EXPECT_EQ(made.route, row.route) << row.name;
    EXPECT_EQ(made.row_tile, row.row_tile) << row.name;
    EXPECT_EQ(made.num_split, row.split) << row.name;
    EXPECT_EQ(made.unsplit_items, row.unsplit_items) << row.name;
    EXPECT_EQ(to_string(made.reducer), row.name == kNamesAReducerWithoutOne ? "none" : row.receipt)
        << row.name;
  }
}

TEST(KimiK3MlaPlan, SplitsThePublishedRowsAsForeseenFor132Sms) {
  for (const Row& row : rows()) {
    const Plan made = plan_for(row.problem, 132);
    EXPECT_EQ(made.num_split, row.split_at_132) << row.name;
    EXPECT_EQ(to_string(made.reducer), row.reducer_at_132) << row.name;
    EXPECT_EQ(made.unsplit_items, 0u) << row.name;
  }
}

TEST(KimiK3MlaPlan, TakesTheSmallestRowTileThatHoldsARequest) {
  struct Case {
    u32 heads;
    u64 query;
    u32 row_tile;
    u32 row_tiles;
  };
  for (const auto& [heads, query, row_tile, row_tiles] :
       {Case{1, 1, 16, 1}, Case{16, 1, 16, 1}, Case{17, 1, 32, 1}, Case{16, 2, 32, 1},
        Case{11, 3, 48, 1}, Case{12, 4, 48, 1}, Case{7, 7, 64, 1}, Case{64, 1, 64, 1},
        Case{65, 1, 96, 1}, Case{96, 1, 96, 1}, Case{97, 1, 96, 2}, Case{128, 3, 96, 4}}) {
    const Plan made = plan_for({heads, 2, query, 4096}, 132);
    EXPECT_EQ(made.route, kTiles);
    EXPECT_EQ(made.row_tile, row_tile) << heads << " x " << query;
    EXPECT_EQ(made.row_tiles, row_tiles) << heads << " x " << query;
    EXPECT_EQ(made.items, 2u * row_tiles);
  }
}

TEST(KimiK3MlaPlan, GoesWideFrom65RowsAndTheThresholdOn) {
  struct Case {
    u32 least_keys;
    u32 heads;
    u64 keys;
    Route route;
  };
  for (const auto& [least_keys, heads, keys, route] :
       {Case{8192, 64, 8192, kTiles}, Case{8192, 65, 8191, kTiles}, Case{8192, 65, 8192, kWide},
        Case{16384, 65, 8192, kTiles}, Case{16384, 65, 16383, kTiles},
        Case{16384, 65, 16384, kWide}, Case{16384, 64, 2147483519, kTiles},
        Case{0, 65, 0, kWide}}) {
    Constants constants = kPublished;
    constants.wide_least_keys = least_keys;
    EXPECT_EQ(plan_for({heads, 1, 1, keys}, 148, constants).route, route)
        << least_keys << ", " << heads << " heads, " << keys << " keys";
  }
}

TEST(KimiK3MlaPlan, KeepsToRowTilesUpToAsManyRowsAsTheConstantsSay) {
  Constants constants = kH200;
  constants.most_row_tile_rows = 96;
  const Plan made = plan_for({96, 8, 1, 342305}, 132, constants);
  EXPECT_EQ(made.route, kTiles);
  EXPECT_EQ(made.row_tile, 96u);
  EXPECT_EQ(made.num_split, 8u);
  EXPECT_EQ(plan_for({97, 8, 1, 342305}, 132, constants).route, kWide);
}

TEST(KimiK3MlaPlan, TakesMoreRowsInTilesOf96WhereTheConstantsSayThatThatIsCheaper) {
  struct Case {
    u32 heads;
    u64 batch, query, keys;
    Route route;
    u32 split;
  };
  for (const auto& [heads, batch, query, keys, route, split] :
       {Case{96, 8, 2, 342305, kTiles, 4},    // 16 items on 66 pairs either way
        Case{64, 8, 2, 342305, kWide, 8},     // 128 rows are one wide item
        Case{128, 8, 1, 342305, kWide, 8},    //
        Case{96, 12, 2, 342305, kWide, 11},   // in tiles of 96 a quarter of the pairs is idle
        Case{96, 8, 4, 342305, kWide, 11},    // 4 tiles of 96, but 3 wide ones
        Case{12, 1, 24, 342305, kTiles, 22},  // 3 of either
        Case{96, 2, 512, 32768, kWide, 3}, Case{96, 8, 2, 8191, kTiles, 4}}) {
    const Plan made = plan_for({heads, batch, query, keys}, 132, kH200);
    EXPECT_EQ(made.route, route) << heads << " heads, " << batch << " x " << query;
    EXPECT_EQ(made.row_tile, route == kTiles ? 96u : 128u);
    EXPECT_EQ(made.num_split, split) << heads << " heads, " << batch << " x " << query;
  }
  // A split that was asked for leaves the route as it was.
  EXPECT_EQ(plan_for({96, 8, 2, 342305, 4}, 132, kH200).route, kWide);
  Constants never = kH200;
  never.row_tile_96_cost = 0;
  EXPECT_EQ(plan_for({96, 8, 2, 342305}, 132, never).route, kWide);
}

TEST(KimiK3MlaPlan, SplitsRowTilesOnceOverTheMachineButNotFinerThanTwoTiles) {
  struct Case {
    u64 batch, keys;
    u32 sm_count, split;
  };
  for (const auto& [batch, keys, sm_count, split] :
       {Case{1, 0, 132, 1}, Case{1, 511, 132, 2}, Case{1, 512, 132, 2}, Case{1, 513, 132, 2},
        Case{1, 256, 132, 1}, Case{1, 641, 132, 3}, Case{1, 1000000, 132, 132},
        Case{1, 1000000, 512, 256}, Case{2, 1000000, 7, 3}, Case{66, 1000000, 132, 2},
        Case{67, 1000000, 132, 1}, Case{1000, 1000000, 132, 1}, Case{1, 1000000, 1, 1}})
    EXPECT_EQ(plan_for({12, batch, 1, keys}, sm_count).num_split, split)
        << batch << " x " << keys << " on " << sm_count;
}

// At the SM counts of several machines, and with other costs of a wave: at 152 SMs a dear wave
// makes one of 9 splits better than two of 19.
TEST(KimiK3MlaPlan, SplitsWideByTheCostOfWaves) {
  struct Case {
    u32 heads;
    u64 batch, query, keys;
    u32 sm_count, wave_cost, split;
    u64 unsplit;
  };
  const std::vector<Case> cases = {
      {96, 8, 1, 342305, 132, 8, 8, 0},      {96, 8, 1, 342305, 144, 8, 9, 0},
      {96, 8, 1, 342305, 148, 8, 9, 0},      {96, 8, 1, 342305, 160, 8, 10, 0},
      {96, 8, 1, 342305, 152, 8, 19, 0},     {96, 8, 1, 342305, 152, 16, 9, 0},
      {96, 8, 8, 342305, 148, 0, 20, 0},     {96, 8, 8, 342305, 148, 8, 3, 0},
      {96, 1, 1, 76800, 132, 8, 60, 0},      {96, 1, 1, 76800, 160, 8, 75, 0},
      {96, 1, 1, 8192, 148, 8, 32, 0},       {96, 64, 1, 8192, 148, 8, 1, 0},
      {96, 75, 1, 131072, 148, 8, 9, 0},     {96, 100, 1, 131072, 148, 8, 5, 0},
      {96, 1, 1, 342305, 1, 8, 1, 0},        {12, 1, 2048, 131072, 132, 8, 1, 0},
      {12, 1, 2048, 131072, 144, 8, 3, 144}, {12, 1, 2048, 131072, 148, 8, 5, 148},
      {12, 1, 2048, 131072, 152, 8, 7, 152}, {12, 1, 2048, 131072, 160, 8, 5, 0},
  };
  for (const auto& [heads, batch, query, keys, sm_count, wave_cost, split, unsplit] : cases) {
    Constants constants = kPublished;
    constants.wave_cost_tiles = wave_cost;
    const Plan made = plan_for({heads, batch, query, keys}, sm_count, constants);
    EXPECT_EQ(made.route, kWide);
    const std::string name = std::to_string(heads) + " heads, " + std::to_string(batch) + " x " +
                             std::to_string(query) + ", " + std::to_string(keys) + " keys, " +
                             std::to_string(sm_count) + " SMs, W " + std::to_string(wave_cost);
    EXPECT_EQ(made.num_split, split) << name;
    EXPECT_EQ(made.unsplit_items, unsplit) << name;
  }
}

// 8 and 16, both of which were published.
TEST(KimiK3MlaPlan, DependsLittleOnWhatAWaveCosts) {
  Constants dear = kPublished;
  dear.wave_cost_tiles = 16;
  const auto differing = [&](u32 sm_count) {
    std::string names;
    for (std::size_t i = 0; i < 27; ++i) {
      const Plan cheap_plan = plan_for(rows()[i].problem, sm_count);
      const Plan dear_plan = plan_for(rows()[i].problem, sm_count, dear);
      if (cheap_plan.num_split != dear_plan.num_split ||
          cheap_plan.unsplit_items != dear_plan.unsplit_items)
        names += std::string(rows()[i].name) + " ";
    }
    return names;
  };
  EXPECT_EQ(differing(132), "");
  EXPECT_EQ(differing(148), "prefill_h96_b2_q512 ");
}

// More SMs, or a higher cap, never make for fewer splits of a row tile; no plan passes the caps.
TEST(KimiK3MlaPlan, KeepsItsCapsAtEverySize) {
  for (const u32 heads : {12u, 96u})
    for (const u64 query : {u64{1}, u64{8}, u64{512}})
      for (const u64 batch : {u64{1}, u64{3}, u64{8}, u64{70}})
        for (const u64 keys : {u64{0}, u64{1}, u64{129}, u64{8192}, u64{342305}}) {
          u32 before = 1;
          for (const u32 sms : {1u, 7u, 48u, 66u, 76u, 114u, 132u, 144u, 148u, 152u, 160u}) {
            const Problem problem{heads, batch, query, keys};
            const Plan made = plan_for(problem, sms);
            const u64 tiles = std::max<u64>(1, (keys + 127) / 128);
            EXPECT_GE(made.num_split, 1u);
            EXPECT_LE(made.num_split, std::max<u64>(1, std::min<u64>(256, tiles / 2)));
            EXPECT_LT(made.unsplit_items, made.items);
            EXPECT_EQ(made.reducer == Reducer::none, made.num_split == 1);
            if (made.route == kTiles) {
              EXPECT_GE(made.num_split, before);
              before = made.num_split;
            }
            Constants capped = kPublished;
            capped.most_splits = 4;
            EXPECT_LE(plan_for(problem, sms, capped).num_split, 4u);
          }
        }
}

TEST(KimiK3MlaPlan, SplitsOnlyTheTailOfManyItemsWhereThatPays) {
  // 192 items on 74 pairs: two full waves, and 44 items that would leave 30 pairs idle.
  const Plan made = plan_for({12, 1, 2048, 131072}, 148);
  EXPECT_EQ(made.items, 192u);
  EXPECT_EQ(made.unsplit_items, 148u);
  EXPECT_EQ(made.num_split, 5u);
  EXPECT_EQ(made.grid, (Extent{2 * (148 + 44 * 5), 1, 1}));
  EXPECT_EQ(made.reduce_rows, 44u * 128u);
  // Without a tail, and with a tail that is nearly a wave: 148 and 144 items.
  EXPECT_EQ(plan_for({128, 1, 148, 131072}, 148).num_split, 1u);
  EXPECT_EQ(plan_for({128, 1, 144, 131072}, 148).num_split, 1u);
  // A tail behind so many waves that it does not count: 1536 items.
  EXPECT_EQ(plan_for({96, 1, 2048, 131072}, 148).unsplit_items, 0u);
  // An H200: 1 % is enough there, 18 items behind 23 waves; and where equal splits of 96 items pay,
  // those of 30 alone cost less.
  EXPECT_EQ(plan_for({96, 1, 2048, 131072}, 132, kH200).unsplit_items, 1518u);
  EXPECT_EQ(plan_for({96, 1, 2048, 131072}, 132, kH200).num_split, 7u);
  const Plan some = plan_for({12, 2, 512, 32768}, 132, kH200);
  EXPECT_EQ(some.unsplit_items, 66u);
  EXPECT_EQ(some.num_split, 2u);
  Constants all = kH200;
  all.tail_or_all = false;
  EXPECT_EQ(plan_for({12, 2, 512, 32768}, 132, all).unsplit_items, 0u);
  EXPECT_EQ(plan_for({12, 2, 512, 32768}, 132, all).num_split, 2u);
  // A split that was asked for is one of all items.
  const Plan asked = plan_for({12, 1, 2048, 131072, 5}, 148);
  EXPECT_EQ(asked.unsplit_items, 0u);
  EXPECT_EQ(asked.grid, (Extent{2 * 192 * 5, 1, 1}));
  EXPECT_EQ(asked.reduce_rows, 12u * 2048u);
}

TEST(KimiK3MlaPlan, LaysOutGridsAndReducers) {
  struct Case {
    Problem problem;
    Extent grid;
    u32 cluster;
    Reducer reducer;
    u64 rows;
    Extent reducer_grid;
  };
  for (const auto& [problem, grid, cluster, reducer, rows, reducer_grid] : {
           Case{{12, 8, 1, 342305}, {16, 1, 8}, 1, Reducer::w4, 96, {48, 1, 1}},
           Case{{12, 8, 4, 342305}, {16, 1, 8}, 1, Reducer::w2, 384, {96, 1, 1}},
           Case{{12, 1, 1, 76800}, {132, 1, 1}, 1, Reducer::cta, 12, {12, 4, 1}},
           Case{{96, 8, 8, 8000}, {2, 8, 8}, 1, Reducer::w1, 6144, {768, 1, 1}},
           Case{{96, 8, 1, 342305}, {2 * 8 * 8, 1, 1}, 2, Reducer::w2, 768, {192, 1, 1}},
           Case{{12, 200, 1, 4096}, {1, 1, 200}, 1, Reducer::none, 0, {0, 1, 1}},
           Case{{12, 1, 1, 0}, {1, 1, 1}, 1, Reducer::none, 0, {0, 1, 1}},
           Case{{1, 1, 1, 8192, 32}, {32, 1, 1}, 1, Reducer::w4, 1, {1, 1, 1}},
           Case{{1, 1, 1, 8192, 33}, {33, 1, 1}, 1, Reducer::cta, 1, {1, 4, 1}},
           Case{{1, 1, 1, 64, 256}, {256, 1, 1}, 1, Reducer::cta, 1, {1, 4, 1}},
           Case{{64, 4, 1, 8000, 2}, {2, 1, 4}, 1, Reducer::w4, 256, {128, 1, 1}},
           Case{{1, 257, 1, 8000, 2}, {2, 1, 257}, 1, Reducer::w2, 257, {65, 1, 1}},
           Case{{64, 16, 1, 8000, 2}, {2, 1, 16}, 1, Reducer::w2, 1024, {256, 1, 1}},
           Case{{1, 1025, 1, 8000, 2}, {2, 1, 1025}, 1, Reducer::w1, 1025, {129, 1, 1}},
       }) {
    const Plan made = plan_for(problem, 132);
    EXPECT_EQ(made.grid, grid) << made.grid.x << ", " << made.grid.y << ", " << made.grid.z;
    EXPECT_EQ(made.cluster_blocks, cluster);
    EXPECT_EQ(to_string(made.reducer), to_string(reducer));
    EXPECT_EQ(made.reduce_rows, rows);
    EXPECT_EQ(made.reducer_grid, reducer_grid) << made.reducer_grid.x;
  }
}

TEST(KimiK3MlaPlan, GivesAPairOfBlocksToATileOf96RowsWhereOneCannotHoldIt) {
  const Problem problem{96, 8, 8, 8000};
  EXPECT_EQ(plan_for(problem, 132, kH200).grid, (Extent{2, 8, 8}));
  EXPECT_EQ(plan_for(problem, 132, kH200).cluster_blocks, 2u);
  EXPECT_EQ(plan_for(problem, 132, kH200).num_split, 1u);
  EXPECT_EQ(plan_for({96, 1, 1, 8000}, 132, kH200).grid, (Extent{2 * 31, 1, 1}));
  EXPECT_EQ(plan_for({64, 1, 1, 8000}, 132, kH200).grid, (Extent{31, 1, 1}));
}

TEST(KimiK3MlaPlan, TakesTheConstantsOfADeviceAndTheClustersOfItsKernels) {
  const Constants hopper = constants_for({.architecture = "sm_90a", .sm_count = 78});
  EXPECT_EQ(hopper.name, "h200");
  EXPECT_EQ(hopper.sm_count, 78u);
  const Constants other = constants_for({.architecture = "sm_100a", .sm_count = 148});
  EXPECT_EQ(other.name, "published");
  for (const Constants& constants : {hopper, other})
    for (const Problem& problem : {Problem{12, 1, 1, 8192}, Problem{96, 1, 1, 8000},
                                   Problem{96, 1, 1, 8192}, Problem{12, 8, 5, 8192}}) {
      const Plan made = plan_for(problem, constants.sm_count, constants);
      EXPECT_EQ(made.cluster_blocks, attend::cluster_blocks(made.row_tile));
      const LaunchShape shape = attend_shape(made);
      EXPECT_EQ(shape.grid_blocks, made.grid);
      EXPECT_EQ(shape.cluster_blocks, (Extent{made.cluster_blocks, 1, 1}));
      EXPECT_EQ(made.grid.x % made.cluster_blocks, 0u);
      EXPECT_EQ(shape.block_threads, (Extent{attend::kBlockThreads, 1, 1}));
      EXPECT_EQ(shape.shared_bytes, attend::layout(made.row_tile).bytes);
      EXPECT_LE(shape.shared_bytes, 227u * 1024);
      EXPECT_EQ(shape.overlap_previous, Overlap::no);
      const LaunchShape reducer = reduce_shape(made);
      EXPECT_EQ(reducer.grid_blocks, made.reducer_grid);
      EXPECT_EQ(reducer.block_threads, (Extent{256, 1, 1}));
      EXPECT_EQ(reducer.overlap_previous, Overlap::yes);
    }
}

TEST(KimiK3MlaKey, IsThatOfThePlan) {
  for (const Row& row : rows()) {
    const Plan made = plan_for(row.problem, 132, kH200);
    EXPECT_TRUE(attend::check_key(attend::key_of(made)));
    EXPECT_EQ(attend::key_of(made).row_tile, made.row_tile);
  }
  struct Case {
    Reducer reducer;
    u32 row_warps;
  };
  for (const auto& [reducer, row_warps] :
       {Case{Reducer::w1, 1}, Case{Reducer::w2, 2}, Case{Reducer::w4, 4}, Case{Reducer::cta, 0}}) {
    EXPECT_EQ(reduce::key_of(reducer).row_warps, row_warps);
    EXPECT_TRUE(reduce::check_key(reduce::key_of(reducer)));
  }
  for (const u32 row_tile : {0u, 8u, 17u, 80u, 112u, 256u}) {
    const Status status = attend::check_key({.row_tile = row_tile});
    ASSERT_FALSE(status);
    EXPECT_EQ(message_of(status).find("kimi_k3_mla_attend: row_tile is " +
                                      std::to_string(row_tile) + "; it must be 16, 32"),
              0u)
        << message_of(status);
  }
  for (const u32 row_warps : {3u, 5u, 8u})
    EXPECT_EQ(message_of(reduce::check_key({.row_warps = row_warps}))
                  .find("kimi_k3_mla_reduce: row_warps is " + std::to_string(row_warps)),
              0u);
  EXPECT_NE(attend::spec_of({16}).key, attend::spec_of({32}).key);
  EXPECT_EQ(attend::spec_of({16}).variants.size(), 1u);
  EXPECT_NE(reduce::spec_of({1}).key, reduce::spec_of({0}).key);
}

TEST(KimiK3MlaPlan, NamesItsSetsOfConstants) {
  EXPECT_EQ(constants_names(), (std::vector<std::string>{"published", "h200"}));
  ASSERT_NE(find_constants("published"), nullptr);
  EXPECT_EQ(find_constants("published")->sm_count, 148u);
  EXPECT_EQ(find_constants("published")->wave_cost_tiles, 8u);
  EXPECT_EQ(find_constants("published")->wide_least_keys, 8192u);
  EXPECT_EQ(find_constants("published")->most_splits, 256u);
  ASSERT_NE(find_constants("h200"), nullptr);
  EXPECT_EQ(find_constants("h200")->sm_count, 132u);
  EXPECT_EQ(find_constants("b300"), nullptr);
  EXPECT_EQ(find_constants(""), nullptr);
}

TEST(KimiK3MlaPlan, CountsTheWorkspaceToTheByte) {
  const Plan made = plan_for({12, 8, 1, 342305}, 132);
  const Workspace at = workspace_of(made);
  EXPECT_EQ(at.outputs, 0u);
  EXPECT_EQ(at.maxima, 96u * 16 * 1024);
  EXPECT_EQ(at.sums, at.maxima + 96 * 16 * 4);
  EXPECT_EQ(at.bytes, at.sums + 96 * 16 * 4);
  EXPECT_EQ(workspace_bytes(made), 1585152u);
  // 3 rows in 3 splits: 36 bytes of maxima take 48.
  const Workspace odd = workspace_of(plan_for({3, 1, 1, 8192, 3}, 132));
  EXPECT_EQ(odd.maxima, 9216u);
  EXPECT_EQ(odd.sums, 9216u + 48);
  EXPECT_EQ(odd.bytes, 9216u + 96);
  EXPECT_EQ(workspace_bytes(plan_for({12, 200, 1, 4096}, 132)), 0u);
  // The tail plan keeps whole tiles of its split items alone.
  EXPECT_EQ(workspace_bytes(plan_for({12, 1, 2048, 131072}, 148)), 44u * 128 * 5 * (1024 + 8));
  EXPECT_EQ(workspace_bytes(Plan{}), 0u);
}

TEST(KimiK3MlaPlan, HasNothingToDoForAnEmptyBatch) {
  for (const Problem& problem : {Problem{12, 0, 1, 4096}, Problem{96, 8, 0, 8192}}) {
    const Plan made = plan_for(problem, 132);
    EXPECT_EQ(made.grid.x, 0u);
    EXPECT_EQ(made.reducer_grid.x, 0u);
    EXPECT_EQ(made.items, 0u);
    EXPECT_EQ(workspace_bytes(made), 0u);
    EXPECT_EQ(reasons(problem, 132, kPublished).size(), 1u);
  }
  // Requests without keys are work all the same: their outputs are written, as zeros.
  EXPECT_EQ(plan_for({12, 8, 1, 0}, 132).grid, (Extent{1, 1, 8}));
}

TEST(KimiK3MlaPlan, RefusesWhatNoKernelTakesAndSaysWhy) {
  struct Case {
    Problem problem;
    u32 sm_count;
    std::string_view says;
  };
  for (const auto& [problem, sm_count, says] : {
           Case{{0, 1, 1, 64}, 132, "heads is 0; it must be from 1 to 128"},
           Case{{129, 1, 1, 64}, 132, "heads is 129; it must be from 1 to 128"},
           Case{{12, 1, 1, 64, 257}, 132, "split is 257; it must be from 1 to 256"},
           Case{{12, 1, 1, 64, 100000}, 132, "split is 100000; it must be from 1 to 256"},
           Case{{12, 1, 1, 64, static_cast<u32>(-1)}, 132, "split is 4294967295; it must be"},
           Case{{12, 65536, 1, 64}, 132, "batch is 65536; it must be at most 65535"},
           Case{{12, 1, 1, u64{1} << 31}, 132, "keys is 2147483648; it must be at most 2147483519"},
           Case{{12, 1, u64{1} << 31, 64}, 132, "query is 2147483648; it must be at most"},
           Case{{128, 1, (1u << 23) + 1, 8192},
                132,
                "query * heads is 1073741952; it must be at most"},
           Case{{12, 1, 1, 64}, 0, "sm_count is 0; it must be from 1"},
           Case{{128, 1, 65536, 4096}, 132, "row tiles of a request is 87382; it must be at most"},
           Case{{128, 65535, 65535, 8192}, 132, "blocks of the call is"},
           Case{{128, 65535, 1000, 8191, 2}, 132, "split rows is"},
       }) {
    const auto made = plan(problem, sm_count, kPublished);
    ASSERT_FALSE(made) << says;
    EXPECT_EQ(made.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(made).find("kimi_k3_mla: " + std::string(says)), std::string::npos)
        << message_of(made);
  }
  Constants three = kPublished;
  three.row_tile_96_blocks = 3;
  EXPECT_NE(message_of(plan({12, 1, 1, 64}, 132, three)).find("row_tile_96_blocks is 3"),
            std::string::npos);
  Constants none = kPublished;
  for (const u32 most : {0u, 257u}) {
    none.most_splits = most;
    EXPECT_NE(message_of(plan({12, 1, 1, 64}, 132, none)).find("most_splits is"),
              std::string::npos);
  }
}

TEST(KimiK3MlaPlan, SaysWhy) {
  const auto all = [](const Problem& problem, u32 sm_count, const Constants& constants) {
    std::string words;
    for (const auto& reason : reasons(problem, sm_count, constants)) words += reason + "\n";
    return words;
  };
  EXPECT_EQ(all({12, 8, 1, 342305}, 148, kPublished),
            R"(route: row tiles; 12 rows of a request are at most 64
row tile: 16, the smallest that holds them; 1 tile a request, 8 items in all
split: 18; 148 SMs hold 8 items 18 times; at least 1, at most 256 of two tiles of 128 keys or more
reducer: w4; 96 rows (w4 up to 256, w2 up to 1024, w1 above)
)");
  EXPECT_EQ(
      all({96, 2, 512, 32768}, 148, kPublished),
      R"(route: wide; 49152 rows of a request are more than 64, and 32768 keys are at least 8192
row tile: 128, what a pair of blocks takes; 384 tiles a request, 768 items in all
split: 1; 768 items on 74 pairs of SMs cost 2942.40 tile times, in 2 splits 2932.80: 1.00 times as fast, and 1.15 is asked for
tail split: 5; 28 items of the last wave; whole, the call costs 2831.57 tile times, with them in 5 splits 2764.78: 2.36 % less, and 2 % is asked for
reducer: w1; 3584 rows (w4 up to 256, w2 up to 1024, w1 above)
)");
  EXPECT_EQ(all({96, 2, 8, 8000, 40}, 132, kH200),
            R"(route: row tiles; 8000 keys are fewer than 8192
row tile: 96, the largest; 8 tiles a request, 16 items in all
split: 40, as asked for
reducer: cta; 40 splits are more than 32
)");
  EXPECT_EQ(
      all({12, 2, 512, 32768}, 132, kH200),
      R"(route: wide; 6144 rows of a request are more than 96, and 32768 keys are at least 8192
row tile: 128, what a pair of blocks takes; 48 tiles a request, 96 items in all
split: 1; 96 items on 66 pairs of SMs cost 532.80 tile times, in 2 splits 417.60: 1.28 times as fast, and 1.15 is asked for
tail split: 2; 30 items of the last wave; whole, the call costs 467.52 tile times, with them in 2 splits 398.79: 14.70 % less, and 1 % is asked for, and less than in equal splits of all
reducer: w1; 3840 rows (w4 up to 256, w2 up to 1024, w1 above)
)");
  EXPECT_EQ(
      all({96, 8, 2, 342305}, 132, kH200),
      R"(route: row tiles; 192 rows of a request cost 553.09 tile times in tiles of 96, 0.81 of a tile time each, and 680.20 in the wide kernel
row tile: 96, the largest; 2 tiles a request, 16 items in all
split: 4; 66 pairs of SMs hold 16 items 4 times; at least 1, at most 256 of two tiles of 128 keys or more
reducer: w1; 1536 rows (w4 up to 256, w2 up to 1024, w1 above)
)");
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
