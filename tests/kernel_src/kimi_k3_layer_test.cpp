// Which kernels an MLA layer of Kimi-K3 registers, and which a step takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/layers/kimi_k3/dispatch.hpp"
#include "kernel_src/layers/kimi_k3/families.hpp"
#include "support/runtime_fixture.hpp"
#include "tests/kernel_src/kimi_k3_mla_inputs.hpp"

namespace kiln::kernels::kimi_k3::test {
namespace {

using kiln::test::message_of;
namespace mla = kimi_k3_mla;
using mla::Programs;

DeviceInfo device_of(const char* architecture = "sm_90a", unsigned sm_count = 132,
                     unsigned shared_bytes = 227 * 1024) {
  return {
      .architecture = architecture, .sm_count = sm_count, .shared_bytes_per_block = shared_bytes};
}

Dispatch dispatch_for(const LayerOptions& layer, const DeviceInfo& device = device_of()) {
  const auto made = dispatch_of(layer, device);
  EXPECT_TRUE(made) << message_of(made);
  return made ? *made : Dispatch{};
}

std::string row_tiles_of(const Programs& programs) {
  std::string text;
  for (const auto& key : programs.attend) text += std::to_string(key.row_tile) + " ";
  return text;
}
std::string row_warps_of(const Programs& programs) {
  std::string text;
  for (const auto& key : programs.reduce) text += std::to_string(key.row_warps) + " ";
  return text;
}

TEST(KimiK3Layer, RegistersThePrograms) {
  struct Case {
    LayerOptions layer;
    const char* row_tiles;
    const char* row_warps;  // 4, 2 and 1 for w4, w2 and w1; 0 for cta
  };
  for (const auto& [layer, row_tiles, row_warps] : {
           Case{{.tp = 8, .max_batch = 1, .max_query = 1}, "16 ", "4 0 "},
           Case{{.tp = 8, .max_batch = 22, .max_query = 1}, "16 ", "4 2 0 "},
           Case{{.tp = 8, .max_batch = 86, .max_query = 1}, "16 ", "4 2 1 0 "},
           Case{{.tp = 8, .max_batch = 8, .max_query = 4}, "16 32 48 ", "4 2 0 "},
           Case{{.tp = 8, .max_query = 8}, "16 32 48 64 96 ", "4 2 1 0 "},
           Case{{.tp = 8, .max_query = 9}, "16 32 48 64 96 128 ", "4 2 1 0 "},
           Case{{.tp = 8, .max_query = 2048}, "16 32 48 64 96 128 ", "4 2 1 0 "},
           Case{{.tp = 8, .max_query = 8, .max_keys = 8191}, "16 32 48 64 96 ", "4 2 1 "},
           Case{{.tp = 8, .max_batch = 1, .max_query = 1, .max_keys = 8192}, "16 ", "4 "},
           Case{{.tp = 8, .max_batch = 1, .max_query = 1, .max_keys = 8448}, "16 ", "4 0 "},
           Case{{.tp = 8, .max_query = 1, .max_keys = 384}, "16 ", ""},
           Case{{.tp = 1, .max_batch = 8, .max_query = 1}, "96 ", "4 2 0 "},
           Case{{.tp = 1, .max_batch = 8, .max_query = 2048}, "96 128 ", "4 2 1 0 "},
           Case{{.tp = 1, .max_batch = 8, .max_query = 1, .max_keys = 8191}, "96 ", "4 2 "},
           Case{{.tp = 2, .max_batch = 1, .max_query = 1, .max_keys = 8191}, "48 ", "4 "},
           Case{{.tp = 8, .max_query = 1, .split = 1}, "16 ", ""},
           Case{{.tp = 8, .max_query = 1, .split = 32}, "16 ", "4 2 1 "},
           Case{{.tp = 8, .max_query = 1, .split = 33}, "16 ", "0 "},
       }) {
    const Programs programs = programs_of(dispatch_for(layer));
    const std::string name = "tp " + std::to_string(layer.tp) + ", query " +
                             std::to_string(layer.max_query) + ", keys " +
                             std::to_string(layer.max_keys);
    EXPECT_EQ(row_tiles_of(programs), row_tiles) << name;
    EXPECT_EQ(row_warps_of(programs), row_warps) << name;
    for (const auto& key : programs.attend) EXPECT_TRUE(mla::attend::check_key(key));
    for (const auto& key : programs.reduce) EXPECT_TRUE(mla::reduce::check_key(key));
  }
}

// What is launched was registered, and fits the workspace that the layer asked for.
TEST(KimiK3Layer, TakesOnlyWhatItRegisteredWithinItsWorkspace) {
  for (const LayerOptions& layer :
       {LayerOptions{.tp = 8, .max_batch = 40}, LayerOptions{.tp = 1, .max_batch = 40},
        LayerOptions{.tp = 1, .max_batch = 4, .max_query = 2048, .max_keys = 131072},
        LayerOptions{.tp = 4, .max_batch = 9, .max_query = 3, .split = 7},
        LayerOptions{.tp = 8, .max_batch = 9, .max_query = 600, .split = 40}})
    for (const auto& device : {device_of(), device_of("sm_90a", 7), device_of("sm_100a", 148)}) {
      const Dispatch dispatch = dispatch_for(layer, device);
      const Programs programs = programs_of(dispatch);
      for (const u64 batch : {u64{1}, u64{3}, u64{8}, u64{35}, layer.max_batch})
        for (const u64 query : {u64{1}, u64{2}, u64{5}, u64{97}, layer.max_query})
          for (u64 keys = 0; keys <= layer.max_keys; keys = keys * 5 / 3 + 100) {
            if (batch > layer.max_batch || query > layer.max_query) continue;
            const auto made = choose_plan(dispatch, {batch, query, keys});
            ASSERT_TRUE(made) << message_of(made);
            const auto has = [](const auto& keys_of, const auto& key) {
              return std::find(keys_of.begin(), keys_of.end(), key) != keys_of.end();
            };
            ASSERT_TRUE(has(programs.attend, mla::attend::key_of(*made))) << made->row_tile;
            ASSERT_TRUE(made->reducer == mla::Reducer::none ||
                        has(programs.reduce, mla::reduce::key_of(made->reducer)))
                << to_string(made->reducer);
            ASSERT_LE(workspace_bytes(*made), dispatch.workspace_bytes);
            ASSERT_TRUE(layer.split == 0 || made->num_split == layer.split);
            ASSERT_EQ(made->cluster_blocks, mla::attend::cluster_blocks(made->row_tile));
          }
    }
}

// Requests beyond those that the layer looks at need no workspace, however many it is built for.
TEST(KimiK3Layer, AsksForTheWorkspaceOfAllItsStepsWithoutPlanningThemAll) {
  for (const auto& device : {device_of("sm_90a", 20), device_of("sm_90a", 7)})
    for (const u64 keys : {u64{5000}, u64{9000}, u64{131072}, u64{1} << 24}) {
      const Dispatch dispatch = dispatch_for(
          {.tp = 8, .max_batch = 60 * device.sm_count, .max_query = 11, .max_keys = keys}, device);
      u64 most = 0;
      for (u64 batch = 1; batch <= dispatch.layer.max_batch; ++batch)
        for (const u64 query :
             {u64{1}, u64{2}, u64{3}, u64{4}, u64{5}, u64{6}, u64{7}, u64{8}, u64{11}}) {
          const auto made = mla::plan({.heads = 12, .batch = batch, .query = query, .keys = keys},
                                      device.sm_count, dispatch.constants);
          ASSERT_TRUE(made) << message_of(made);
          most = std::max(most, workspace_bytes(*made));
        }
      EXPECT_EQ(dispatch.workspace_bytes, most) << device.sm_count << " SMs, " << keys << " keys";
    }
}

TEST(KimiK3Layer, SplitsLessWhereAPlanWouldNotFitTheWorkspace) {
  Dispatch dispatch = dispatch_for({.tp = 8, .max_batch = 8, .max_query = 1});
  const auto whole = choose_plan(dispatch, {8, 1, 342305});
  ASSERT_TRUE(whole) << message_of(whole);
  EXPECT_EQ(whole->num_split, 16u);
  dispatch.workspace_bytes = workspace_bytes(*whole) - 1;
  EXPECT_EQ(choose_plan(dispatch, {8, 1, 342305})->num_split, 15u);
  dispatch.workspace_bytes = 0;
  EXPECT_EQ(choose_plan(dispatch, {8, 1, 342305})->num_split, 1u);
}

TEST(KimiK3Layer, HasNothingToLaunchInAnEmptyStep) {
  const Dispatch dispatch = dispatch_for({});
  for (const Step& step : {Step{0, 1, 64}, Step{8, 0, 64}, Step{}}) {
    const auto made = choose_plan(dispatch, step);
    ASSERT_TRUE(made) << message_of(made);
    EXPECT_EQ(made->grid.x, 0u);
  }
}

TEST(KimiK3Layer, NamesTheLimitThatAStepDoesNotKeepTo) {
  const Dispatch dispatch = dispatch_for({.max_batch = 8, .max_query = 4, .max_keys = 1000});
  struct Case {
    Step step;
    std::string_view says;
  };
  for (const auto& [step, says] :
       {Case{{9, 1, 1}, "the step's batch is 9; the layer was built for at most 8"},
        Case{{8, 5, 1}, "the step's query is 5; the layer was built for at most 4"},
        Case{{8, 4, 1001}, "the step's keys is 1001; the layer was built for at most 1000"}}) {
    const auto made = choose_plan(dispatch, step);
    ASSERT_FALSE(made) << says;
    EXPECT_EQ(made.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(made).find(says), std::string::npos) << message_of(made);
  }
}

TEST(KimiK3Layer, RefusesOptionsAndDevicesThatCannotBe) {
  struct Case {
    LayerOptions layer;
    DeviceInfo device;
    ErrorCode code;
    std::string_view says;
  };
  const auto bad = ErrorCode::invalid_argument;
  const auto unsupported = ErrorCode::unsupported;
  for (const auto& [layer, device, code, says] : {
           Case{{.tp = 0}, device_of(), bad, "tp is 0; it must be a divisor of 96"},
           Case{{.tp = 5}, device_of(), bad, "tp is 5"},
           Case{{.max_batch = 0}, device_of(), bad, "max_batch is 0; it must be from 1 to 65535"},
           Case{{.max_batch = 65536}, device_of(), bad, "max_batch is 65536"},
           Case{{.max_query = 0}, device_of(), bad, "max_query is 0"},
           Case{{.max_keys = 0}, device_of(), bad, "max_keys is 0"},
           Case{{.max_keys = u64{1} << 31}, device_of(), bad, "max_keys is 2147483648"},
           Case{{.split = 257}, device_of(), bad, "split is 257; it must be from 1 to 256"},
           Case{{}, device_of("sm_90a", 0), bad, "sm_count is 0"},
           Case{{}, device_of("sm_80"), unsupported, "no kernel for \"sm_80\"; it needs sm_90"},
           Case{{},
                device_of("sm_120a", 100, 99 * 1024),
                unsupported,
                "bytes of shared memory and can have 101376"},
       }) {
    const auto made = dispatch_of(layer, device);
    ASSERT_FALSE(made) << says;
    EXPECT_EQ(made.error().code(), code) << message_of(made);
    EXPECT_NE(message_of(made).find(says), std::string::npos) << message_of(made);
  }
}

TEST(KimiK3Families, AreChosenByDimensions) {
  mla::test::HostCall call = mla::test::make_call({.heads = 12, .lengths = {64}}, 1);
  const auto dimensions = dimensions_of(call.arguments());
  ASSERT_TRUE(dimensions) << message_of(dimensions);
  EXPECT_EQ(*dimensions,
            (MlaDimensions{512, 64, 64, DataType::e4m3, DataType::e4m3, DataType::bfloat16}));
  const auto family = family_of(*dimensions);
  ASSERT_TRUE(family) << message_of(family);
  EXPECT_EQ(to_string(*family), "kimi_k3_mla");
  // Each of them alone makes it another family, of which there is none.
  for (std::size_t i = 0; i < 6; ++i) {
    MlaDimensions other = *dimensions;
    if (i == 0) other.latent = 256;
    if (i == 1) other.rope = 128;
    if (i == 2) other.page_keys = 128;
    if (i == 3) other.query = DataType::bfloat16;
    if (i == 4) other.cache = DataType::nvfp4;
    if (i == 5) other.output = DataType::float16;
    const auto none = family_of(other);
    ASSERT_FALSE(none) << i;
    EXPECT_EQ(none.error().code(), ErrorCode::unsupported);
    EXPECT_NE(message_of(none).find("kimi_k3_mla has 512 + 64 elements a key, pages of 64"),
              std::string::npos)
        << message_of(none);
  }
  mla::Arguments arguments = call.arguments();
  arguments.output.shape[2] = 640;
  EXPECT_NE(message_of(dimensions_of(arguments)).find("output is 640 elements wide"),
            std::string::npos);
  arguments.cache.rank = 2;
  EXPECT_NE(message_of(dimensions_of(arguments)).find("cache is of 2 dimensions"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3::test
