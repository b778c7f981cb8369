// What each step of the MLA layer of Kimi-K3 hands to the driver.
#include "kimi_k3_layer.hpp"

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "kernel_src/kimi_k3_mla/table_check.hpp"

namespace kiln::test {
namespace {

class KimiK3Steps : public KimiK3Fixture {};

TEST_F(KimiK3Steps, AreAttentionThenItsReducerAndNothingIsCompiledOrLoadedLate) {
  const auto layer = layer_of({.tp = 8, .max_batch = 200, .max_query = 9, .max_keys = 64000});
  warm_up();
  const auto warm = runtime_->counters();
  EXPECT_EQ(warm.compiles, layer.kernels().size());
  EXPECT_EQ(layer.kernels().size(), 10u);
  auto launches = layer.prepare(arguments_of(12, 1, 1, 1000));
  ASSERT_TRUE(launches) << message_of(launches);
  struct Row {
    u64 batch, query, pages;
    std::array<unsigned, 3> grid;
    unsigned cluster, row_tile;
    std::array<unsigned, 3> reducer;  // x 0: none
  };
  for (const auto& [batch, query, pages, grid, cluster, row_tile, reducer] : {
           Row{1, 1, 1000, {132, 1, 1}, 1, 16, {12, 4, 1}},
           Row{8, 1, 1000, {16, 1, 8}, 1, 16, {48, 1, 1}},
           Row{8, 2, 1000, {16, 1, 8}, 1, 32, {96, 1, 1}},
           Row{8, 4, 1000, {16, 1, 8}, 1, 48, {96, 1, 1}},
           Row{66, 5, 1000, {2, 1, 66}, 1, 64, {495, 1, 1}},
           Row{67, 5, 1000, {1, 1, 67}, 1, 64, {0, 1, 1}},
           Row{8, 9, 1000, {2 * 8 * 8, 1, 1}, 2, 128, {216, 1, 1}},
           Row{8, 8, 1000, {2 * 8, 1, 8}, 2, 96, {192, 1, 1}},
           Row{8, 8, 127, {2 * 8, 1, 8}, 2, 96, {192, 1, 1}},
           Row{200, 1, 1000, {1, 1, 200}, 1, 16, {0, 1, 1}},
       }) {
    SCOPED_TRACE(std::to_string(batch) + " x " + std::to_string(query));
    auto arguments = arguments_of(12, batch, query, pages);
    const auto updated = layer.update(*launches, arguments);
    ASSERT_TRUE(updated) << message_of(updated);
    const auto seen = run(*launches);
    ASSERT_EQ(seen.size(), reducer[0] == 0 ? 1u : 2u);
    EXPECT_EQ(seen[0].grid, grid);
    EXPECT_EQ(cluster_of(seen[0]), cluster);
    EXPECT_EQ(seen[0].block[0], mla::attend::kBlockThreads);
    EXPECT_EQ(seen[0].shared_bytes, mla::attend::layout(row_tile).bytes);
    EXPECT_FALSE(overlaps(seen[0]));
    const auto args = seen[0].argument<mla::Args>(2);
    EXPECT_EQ(args.query, arguments.query.data);
    EXPECT_EQ(args.batch, batch);
    EXPECT_EQ(args.query_len, query);
    EXPECT_EQ(args.splits, launches->plan().num_split);
    EXPECT_EQ(args.partial_outputs == nullptr, reducer[0] == 0);
    if (reducer[0] == 0) continue;
    EXPECT_EQ(seen[1].grid, reducer);
    EXPECT_EQ(seen[1].block[0], 256u);
    EXPECT_TRUE(overlaps(seen[1]));
    const auto joined = seen[1].argument<mla::Args>(0);
    EXPECT_EQ(std::memcmp(&joined, &args, sizeof args), 0);
  }
  EXPECT_EQ(runtime_->counters().compiles, warm.compiles);
  EXPECT_EQ(runtime_->counters().module_loads, warm.module_loads);
}

TEST_F(KimiK3Steps, DescribeTheCacheAsPages) {
  const auto layer = layer_of({.tp = 8, .max_batch = 4, .max_query = 1, .max_keys = 6400});
  auto arguments = arguments_of(12, 4, 1, 100);
  arguments.cache.strides = {100'000 * 16, 640, 1};
  auto launches = layer.prepare(arguments);
  ASSERT_TRUE(launches) << message_of(launches);
  const auto seen = run(*launches);
  ASSERT_EQ(seen.size(), 2u);
  for (const std::size_t index : {0u, 1u}) {
    const auto map = fake_driver::decode(seen[0].argument<CUtensorMap>(index));
    EXPECT_EQ(map.address, 0x2'0000'0000u);
    EXPECT_EQ(map.rank, 3);
    EXPECT_EQ(map.type, CU_TENSOR_MAP_DATA_TYPE_UINT8);
    EXPECT_EQ(map.strides[0], 640u);
    EXPECT_EQ(map.strides[1], 1'600'000u);
    EXPECT_EQ(map.dims_minus[0], 575u);
    EXPECT_EQ(map.dims_minus[1], 63u);
    EXPECT_EQ(map.dims_minus[2], 499u);
    EXPECT_EQ(map.box[0], index == 0 ? 128 : 64);
    EXPECT_EQ(map.box[1], 64);
    EXPECT_EQ(map.box[2], 1);
    EXPECT_EQ(map.swizzle, index == 0 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
  }
}

TEST_F(KimiK3Steps, WithoutTokensLaunchNothing) {
  const auto layer = layer_of({.tp = 8, .max_batch = 4, .max_query = 1, .max_keys = 6400});
  auto launches = layer.prepare(arguments_of(12, 4, 1, 100));
  ASSERT_TRUE(launches) << message_of(launches);
  EXPECT_EQ(run(*launches).size(), 2u);
  ASSERT_TRUE(layer.update(*launches, arguments_of(12, 0, 1, 100)));
  EXPECT_EQ(run(*launches).size(), 0u);
  // Requests without keys, over no cache at all: their outputs are zeros.
  auto arguments = arguments_of(12, 4, 1, 0);
  arguments.cache.shape[0] = 0;
  const auto updated = layer.update(*launches, arguments);
  ASSERT_TRUE(updated) << message_of(updated);
  EXPECT_EQ(run(*launches).size(), 1u);
}

TEST_F(KimiK3Steps, OfAnotherLayerAreRefused) {
  const auto layer = layer_of({.tp = 8, .max_batch = 4, .max_query = 2, .max_keys = 6400});
  auto launches = layer.prepare(arguments_of(12, 4, 1, 100));
  ASSERT_TRUE(launches) << message_of(launches);
  const auto refusal = [&](const mla::Arguments& arguments) {
    const auto updated = layer.update(*launches, arguments);
    EXPECT_FALSE(updated);
    EXPECT_EQ(run(*launches).size(), 0u);  // rather than the call before
    return updated ? std::string() : message_of(updated);
  };
  const auto says = [](const std::string& message, std::string_view what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  says(refusal(arguments_of(96, 4, 1, 100)), "heads is 96; the layer was built for 12");
  says(refusal(arguments_of(12, 5, 1, 100)), "the step's batch is 5");
  says(refusal(arguments_of(12, 4, 3, 100)), "the step's query is 3");
  auto arguments = arguments_of(12, 4, 1, 101);
  EXPECT_TRUE(layer.update(*launches, arguments)) << "a table may have room for more";
  arguments.max_keys = 6401;
  says(refusal(arguments), "the step's keys is 6401");
  arguments = arguments_of(12, 4, 1, 100);
  arguments.split = 2;
  says(refusal(arguments), "split is 2; it must be 0");
  arguments = arguments_of(12, 4, 1, 100);
  arguments.workspace_bytes = 100;
  says(refusal(arguments), "workspace_bytes is 100");
  arguments = arguments_of(12, 4, 1, 100);
  arguments.query.type = mla::DataType::bfloat16;
  says(refusal(arguments), "no family of MLA kernels");
  // What the layer promises is enough.
  arguments = arguments_of(12, 4, 1, 100);
  arguments.workspace_bytes = layer.workspace_bytes();
  EXPECT_TRUE(layer.update(*launches, arguments));
}

// One layer's launches with another layer, as where a list of them is off by one.
TEST_F(KimiK3Steps, OfLaunchesFromAnotherLayerHaveTheirOwnPrograms) {
  const auto few = layer_of({.tp = 8, .max_batch = 4, .max_query = 2, .max_keys = 6400});
  const auto many = layer_of({.tp = 1, .max_batch = 4, .max_query = 2, .max_keys = 6400});
  auto launches = few.prepare(arguments_of(12, 4, 1, 100));
  ASSERT_TRUE(launches) << message_of(launches);
  const auto updated = many.update(*launches, arguments_of(96, 4, 1, 100));
  EXPECT_NE(message_of(updated).find("row_tile is 96; the launches were prepared without"),
            std::string::npos)
      << message_of(updated);
  EXPECT_EQ(run(*launches).size(), 0u);
  mla::Launches none;
  EXPECT_NE(message_of(few.update(none, arguments_of(12, 4, 1, 100))).find("row_tile is 16"),
            std::string::npos);

  // What both have is one program, wherever it stands among the others.
  auto both = mla::Attention::create(*runtime_, {.attend = {{32}, {16}}, .reduce = {{0}, {4}}});
  ASSERT_TRUE(both) << message_of(both);
  const auto plan = mla::plan({12, 4, 1, 6400}, 132, mla::kH200);
  ASSERT_TRUE(plan) << message_of(plan);
  auto theirs = both->prepare(arguments_of(12, 4, 1, 100), *plan);
  ASSERT_TRUE(theirs) << message_of(theirs);
  const auto own = run(*theirs);
  ASSERT_TRUE(few.update(*theirs, arguments_of(12, 4, 1, 100)));
  const auto now = run(*theirs);
  ASSERT_EQ(now.size(), own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(now[i].shared_bytes, own[i].shared_bytes);
    EXPECT_EQ(now[i].grid, own[i].grid);
    EXPECT_EQ(now[i].arguments, own[i].arguments);
  }
}

TEST_F(KimiK3Steps, OfTensorsOnAnotherDeviceAreRefused) {
  driver_.set_device_count(2);
  const auto layer = layer_of({.tp = 8, .max_batch = 4, .max_query = 2, .max_keys = 6400});
  const auto on_device = [](int device) {
    auto arguments = arguments_of(12, 4, 1, 100);
    arguments.cache.device = arguments.lengths.device = device;  // the others' is not known
    return arguments;
  };
  constexpr std::string_view says =
      "the tensors' device is 1; the launches were prepared for device 0";
  const auto refused = layer.prepare(on_device(1));
  EXPECT_NE(message_of(refused).find(says), std::string::npos) << message_of(refused);
  auto launches = layer.prepare(on_device(0));
  ASSERT_TRUE(launches) << message_of(launches);
  const auto updated = layer.update(*launches, on_device(1));
  EXPECT_NE(message_of(updated).find(says), std::string::npos) << message_of(updated);
  EXPECT_EQ(run(*launches).size(), 0u);
}

TEST_F(KimiK3Steps, OfAPlanForOtherProgramsAreRefused) {
  auto attention = mla::Attention::create(*runtime_, {.attend = {{16}}, .reduce = {{4}}});
  ASSERT_TRUE(attention) << message_of(attention);
  const auto arguments = arguments_of(12, 4, 1, 100);
  const auto plan = [](const mla::Problem& problem, const mla::Constants& constants) {
    const auto made = mla::plan(problem, 132, constants);
    EXPECT_TRUE(made) << message_of(made);
    return made ? *made : mla::Plan{};
  };
  auto launches = attention->prepare(arguments, plan({12, 4, 1, 6400}, mla::kH200));
  ASSERT_TRUE(launches) << message_of(launches);
  EXPECT_EQ(run(*launches).size(), 2u);
  const auto refusal = [&](const mla::Plan& other) {
    return message_of(attention->update(*launches, arguments, other));
  };
  EXPECT_NE(refusal(plan({32, 4, 1, 6400}, mla::kH200)).find("row_tile is 32; the launches were"),
            std::string::npos);
  EXPECT_NE(refusal(plan({12, 4, 1, 6400, 40}, mla::kH200)).find("row_warps is 0"),
            std::string::npos);
  EXPECT_NE(refusal(plan({96, 4, 1, 6400}, mla::kPublished))
                .find("a row tile of 96 takes clusters of 2; make the plan with constants_for()"),
            std::string::npos);
  EXPECT_NE(message_of(mla::Attention::create(*runtime_, {.attend = {{17}}, .reduce = {}}))
                .find("row_tile is 17"),
            std::string::npos);
}

TEST_F(KimiK3Steps, HaveTheirTablesCheckedFirstWhereThatIsAskedFor) {
  for (const auto& source : kernels::embedded_sources()) {
    const bool needed = source.name.ends_with("check_tables.cu") ||
                        source.name.ends_with("kimi_k3_mla/args.hpp") ||
                        source.name.starts_with("kernel_src/shared/");
    ASSERT_TRUE(!needed || runtime_->add_source(source.name, source.text));
  }
  const auto layer = layer_of({.tp = 8, .max_batch = 4, .max_query = 2, .max_keys = 6400});
  const auto check = mla::TableCheck::create(*runtime_);
  ASSERT_TRUE(check) << message_of(check);
  warm_up();
  const auto warm = runtime_->counters();
  auto arguments = arguments_of(12, 4, 2, 100);
  arguments.block_tables.strides[0] = 120;
  auto* const report = reinterpret_cast<mla::TableReport*>(std::uintptr_t{0x6'0000'0000});
  auto launches = layer.prepare(arguments);
  ASSERT_TRUE(launches) << message_of(launches);
  auto checked = check->prepare(arguments, report);
  ASSERT_TRUE(checked) << message_of(checked);
  const auto run_both = [&] {
    driver_.forget();
    EXPECT_TRUE(checked->launch(nullptr));
    EXPECT_TRUE(launches->launch(nullptr));
    return driver_.launches();
  };
  const auto seen = run_both();
  ASSERT_EQ(seen.size(), 3u) << "the check, attention, its reducer";
  EXPECT_EQ(seen[0].grid, (std::array<unsigned, 3>{1, 1, 1}));
  EXPECT_EQ(seen[0].block[0], 1024u);
  EXPECT_FALSE(overlaps(seen[0]));
  EXPECT_FALSE(overlaps(seen[1])) << "attention waits for the check";
  const auto args = seen[0].argument<mla::TableCheckArgs>(0);
  EXPECT_EQ(args.block_tables, arguments.block_tables.data);
  EXPECT_EQ(args.seq_lens, arguments.lengths.data);
  EXPECT_EQ(args.query_starts, nullptr);
  EXPECT_EQ(args.report, report);
  EXPECT_EQ(args.table_stride, 120u);
  EXPECT_EQ(args.batch, 4u);
  EXPECT_EQ(args.table_width, 100u);
  EXPECT_EQ(args.pages, 500u);
  EXPECT_EQ(args.query_len, 2u);
  EXPECT_EQ(args.tokens, 8u);

  // Another call, of a packed query.
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  auto packed = arguments_of(12, 3, 2, 90);
  packed.query.rank = packed.output.rank = 3;
  packed.query = mla::Tensor::dense(packed.query.data, mla::DataType::e4m3, {5, 12, 576});
  packed.output =
      mla::OutputTensor::dense(packed.output.data, mla::DataType::bfloat16, {5, 12, 512});
  packed.query_starts = mla::Tensor::dense(at(0x3'c000'0000), mla::DataType::int32, {4});
  packed.max_query = 2;
  ASSERT_TRUE(check->update(*checked, packed, report + 1));
  const auto other = run_both()[0].argument<mla::TableCheckArgs>(0);
  EXPECT_EQ(other.query_starts, packed.query_starts.data);
  EXPECT_EQ(other.report, report + 1);
  EXPECT_EQ(other.batch, 3u);
  EXPECT_EQ(other.table_stride, 90u);
  EXPECT_EQ(other.tokens, 5u);

  // What is refused, and what has no tokens, launches nothing.
  const auto refused = [&](const mla::Arguments& call, mla::TableReport* to,
                           std::string_view says) {
    const auto updated = check->update(*checked, call, to);
    EXPECT_FALSE(updated);
    EXPECT_NE(message_of(updated).find(says), std::string::npos) << message_of(updated);
    EXPECT_EQ(run_both().size(), 2u) << "attention and its reducer alone";
  };
  refused(arguments, nullptr, "report is null");
  refused(arguments, reinterpret_cast<mla::TableReport*>(std::uintptr_t{0x6'0000'0002}),
          "report is 0x600000002");
  auto wrong = arguments;
  wrong.lengths.shape[0] = 3;
  refused(wrong, report, "lengths is of shape [3]");
  ASSERT_TRUE(check->update(*checked, arguments_of(12, 0, 2, 100), report));
  EXPECT_EQ(run_both().size(), 2u);
  ASSERT_TRUE(check->update(*checked, arguments, report));
  EXPECT_EQ(run_both().size(), 3u);
  EXPECT_EQ(runtime_->counters().compiles, warm.compiles);
  EXPECT_EQ(runtime_->counters().module_loads, warm.module_loads);
}

}  // namespace
}  // namespace kiln::test
