// The attention layer of DeepSeek-V4.1 without a device: which kernel a step takes and why, and
// that what a layer registers is what the model's manifest warms up.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "kernel_src/layers/deepseek_v41/decode_attention.hpp"
#include "kernel_src/manifest.hpp"
#include "support/kernels.hpp"

namespace kiln::kernels::deepseek_v41 {
namespace {

using kiln::test::message_of;

DeviceInfo device_of(const char* architecture) {
  return {.architecture = architecture, .sm_count = 132, .shared_bytes_per_block = 227 * 1024};
}

Refusals refusals_of(const std::vector<Refusal>& list) {
  Refusals refusals;
  for (const Refusal refusal : list) refusals.add(refusal);
  return refusals;
}

TEST(DeepseekV41Options, EachWrongOneIsNamedWithItsValueAndWhatIsAllowed) {
  EXPECT_TRUE(check({}));
  EXPECT_TRUE(check({.ratio = 0, .index_topk = 0})) << "there is no list for it";
  EXPECT_TRUE(check({.ratio = 2, .page_tokens = 2, .widened_window = 129}));
  struct Row {
    LayerOptions layer;
    const char* says;
  };
  for (const auto& [layer, says] : {
           Row{{.tp = 0}, "tp is 0; it must be a divisor of 64"},
           Row{{.tp = 3}, "tp is 3; it must be a divisor of 64"},
           Row{{.tp = 128}, "tp is 128"},
           Row{{.ratio = 3}, "ratio is 3; it must be 0 (no compressed cache), 1 or 2"},
           Row{{.record = static_cast<Record>(2)}, "record is 2"},
           Row{{.window = 0}, "swa_slots is 0"},
           Row{{.index_topk = 0}, "index_topk is 0; it must be at least 1"},
           Row{{.index_topk = 65537}, "compressed_slots is 65537"},
           Row{{.swa_page_slots = 96}, "swa_page_slots is 96; it must be a power of two"},
           Row{{.page_tokens = 0}, "page_tokens is 0; it must be a power of two"},
           Row{{.page_tokens = 96}, "page_tokens is 96; it must be a power of two"},
           Row{{.ratio = 2, .page_tokens = 1}, "page_tokens is 1"},
           Row{{.widened_window = 128},
               "widened_window is 128; it must be 0 (never widened) or "
               "more than the window of 128"},
           Row{{.widened_window = 65537}, "swa_slots is 65537"},
       }) {
    const Status status = check(layer);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(status).find(says), std::string::npos) << message_of(status);
  }
}

TEST(DeepseekV41Dispatch, EachConditionAloneRefusesSwapab) {
  struct Row {
    const char* what;
    LayerOptions layer;
    const char* architecture;
    u32 swa_slots;
    std::vector<Refusal> refusals;
  };
  using R = Refusal;
  const auto is_in = [](const auto& list, R refusal) {
    return std::find(list.begin(), list.end(), refusal) != list.end();
  };
  for (const auto& [what, layer, architecture, swa_slots, refusals] : {
           Row{"16 heads", {.tp = 4}, "sm_90a", 128, {}},
           Row{"32 heads", {.tp = 2}, "sm_90a", 128, {}},
           Row{"ratio 2", {.tp = 4, .ratio = 2}, "sm_90a", 128, {}},
           Row{"nvfp4", {.tp = 4, .record = Record::nvfp4}, "sm_90a", 128, {}},
           Row{"8 tiles", {.tp = 4, .window = 512}, "sm_90a", 512, {}},
           Row{"8 tiles", {.tp = 4, .index_topk = 896}, "sm_90a", 128, {}},
           Row{"Blackwell", {.tp = 4}, "sm_103a", 128, {}},
           Row{"no clusters", {.tp = 4}, "sm_80", 128, {R::architecture}},
           Row{"little shared memory", {.tp = 4}, "sm_120a", 128, {R::architecture}},
           Row{"ratio 0", {.tp = 4, .ratio = 0}, "sm_90a", 128, {R::no_compressed_cache}},
           Row{"64 heads", {.tp = 1}, "sm_90a", 128, {R::heads}},
           Row{"8 heads", {.tp = 8}, "sm_90a", 128, {R::heads}},
           Row{"4 heads", {.tp = 16}, "sm_90a", 128, {R::heads}},
           Row{"9 tiles", {.tp = 4, .window = 513}, "sm_90a", 513, {R::tiles}},
           Row{"9 tiles", {.tp = 4, .index_topk = 897}, "sm_90a", 128, {R::tiles}},
           Row{"invariant",
               {.tp = 4, .batch_invariant = true},
               "sm_90a",
               128,
               {R::batch_invariant}},
           Row{"wider lists", {.tp = 4, .widened_window = 192}, "sm_90a", 192, {R::widened_window}},
           Row{"the window of a layer that can widen it",
               {.tp = 4, .widened_window = 192},
               "sm_90a",
               128,
               {}},
       }) {
    const Dispatch dispatch = dispatch_of(layer, device_of(architecture));
    const auto most = swapab_tokens(architecture, 64 / layer.tp)[0].last;
    for (const bool many : {false, true}) {
      SCOPED_TRACE(std::string(what) + (many ? ", one token too many" : ""));
      auto expected = refusals;
      if (many) expected.push_back(R::tokens);
      const Choice choice = choose_kernel(dispatch, most + (many ? 1 : 0), swa_slots);
      for (unsigned i = 0; i < kRefusals; ++i) {
        const auto refusal = static_cast<R>(i);
        EXPECT_EQ(choice.refusals.has(refusal), is_in(expected, refusal)) << to_string(refusal);
      }
      EXPECT_EQ(choice.kernel, expected.empty() ? DecodeKernel::swapab : DecodeKernel::mega);
    }
  }
}

TEST(DeepseekV41Dispatch, AllReasonsOfAStepAreGiven) {
  constexpr u32 wide = 1025;  // 9 tiles of the sliding window alone
  for (unsigned reasons = 0; reasons < 1u << kRefusals; ++reasons) {
    const auto is = [&](Refusal refusal) {
      return (reasons >> static_cast<u32>(refusal) & 1) != 0;
    };
    LayerOptions layer{.tp = is(Refusal::heads) ? 8u : 4u,
                       .ratio = is(Refusal::no_compressed_cache) ? 0u : 1u,
                       .window = is(Refusal::tiles) ? wide : 128,
                       .batch_invariant = is(Refusal::batch_invariant)};
    layer.widened_window = layer.window + 64;
    const auto device = device_of(is(Refusal::architecture) ? "sm_120a" : "sm_90a");
    const Dispatch dispatch = dispatch_of(layer, device);
    Refusals expected;
    for (unsigned i = 0; i < kRefusals; ++i)
      if (is(static_cast<Refusal>(i))) expected.add(static_cast<Refusal>(i));
    const Choice choice =
        choose_kernel(dispatch, dispatch.tokens[0].last + (is(Refusal::tokens) ? 1 : 0),
                      is(Refusal::widened_window) ? layer.widened_window : layer.window);
    EXPECT_EQ(choice.refusals, expected)
        << to_string(choice.refusals) << ", not " << to_string(expected);
    EXPECT_EQ(choice.kernel, reasons == 0 ? DecodeKernel::swapab : DecodeKernel::mega);
  }
}

TEST(DeepseekV41Dispatch, ThePaddedCountAndNothingElseOfAStepDecides) {
  const Dispatch dispatch{.tokens = {{{0, 5}, {31, 32}}}};
  for (std::uint64_t tokens = 0; tokens <= 64; ++tokens)
    EXPECT_EQ(
        choose_kernel(dispatch, tokens, 128).kernel,
        tokens <= 5 || tokens == 31 || tokens == 32 ? DecodeKernel::swapab : DecodeKernel::mega)
        << tokens;
  EXPECT_EQ(choose_kernel({}, 1, 128).refusals, refusals_of({Refusal::tokens}));
}

TEST(DeepseekV41Dispatch, SwapabHasAKeyForEveryLayerThatItIsNotRefusedTo) {
  for (const u32 tp : {1u, 2u, 4u, 8u, 16u, 32u, 64u})
    for (const u32 ratio : {0u, 1u, 2u})
      for (const u32 window : {1u, 64u, 128u, 256u, 512u, 513u, 1025u})
        for (const u32 topk : {1u, 512u, 768u, 896u, 897u, 2048u}) {
          const LayerOptions layer{.tp = tp, .ratio = ratio, .window = window, .index_topk = topk};
          ASSERT_TRUE(check(layer));
          const Dispatch dispatch = dispatch_of(layer, device_of("sm_90a"));
          EXPECT_EQ(dsv41_decode::swapab::check_key(decode_key(layer, window)).ok(),
                    dispatch.refusals.empty())
              << to_string(dispatch.refusals);
        }
}

TEST(DeepseekV41Dispatch, AnH200TakesSwapabWhereItWasMeasuredToBeFaster) {
  for (const u32 tp : {4u, 2u}) {
    const Dispatch dispatch = dispatch_of({.tp = tp}, device_of("sm_90a"));
    for (std::uint64_t tokens = 1; tokens <= 100; ++tokens) {
      const bool swapab = tp == 4 ? tokens <= 64 : tokens <= 22 || (tokens >= 31 && tokens <= 44);
      EXPECT_EQ(choose_kernel(dispatch, tokens, 128).kernel,
                swapab ? DecodeKernel::swapab : DecodeKernel::mega)
          << tokens << " tokens, tp " << tp;
    }
  }
}

TEST(DeepseekV41Dispatch, WhatWasNotMeasuredHasTheDocumentedCutoff) {
  for (const auto* architecture : {"sm_100a", "sm_103a", "sm_90", "", "sm_90ab"})
    for (const u32 heads : {16u, 32u}) {
      const auto [few, many] = swapab_tokens(architecture, heads);
      EXPECT_EQ(few.first, 0u);
      EXPECT_EQ(few.last, 16u);
      EXPECT_GT(many.first, many.last) << "none";
    }
  EXPECT_EQ(swapab_tokens("sm_90a", 8)[0].last, 16u);
}

TEST(DeepseekV41Dispatch, RefusalsAreNamed) {
  std::set<std::string_view> names;
  for (unsigned i = 0; i < kRefusals; ++i) names.insert(to_string(static_cast<Refusal>(i)));
  EXPECT_EQ(names.size(), kRefusals);
  EXPECT_EQ(names.count(""), 0u);
  EXPECT_EQ(to_string(Refusals{}), "none");
  EXPECT_EQ(to_string(refusals_of({Refusal::tokens, Refusal::heads})),
            "neither 16 nor 32 heads, a token count that the other one is faster with");
}

class DeepseekV41Layer : public ::testing::Test {
 protected:
  DeepseekV41Layer() : runtime_(*Runtime::open({})) { EXPECT_TRUE(add_sources(runtime_)); }

  DecodeAttention create(const LayerOptions& layer, const char* architecture = "sm_90a") {
    auto made = DecodeAttention::create(runtime_, layer, device_of(architecture));
    EXPECT_TRUE(made) << message_of(made);
    return *std::move(made);
  }

  /// How many kernels are registered.
  std::uint32_t registered() {
    static unsigned probes = 0;
    const auto name = "probe" + std::to_string(probes++) + ".cu";
    EXPECT_TRUE(runtime_.add_source(name, "extern \"C\" __global__ void entry() {}"));
    const auto id = runtime_.add({.name = "probe", .source = name});
    EXPECT_TRUE(id) << message_of(id);
    return id ? id->index : 0;
  }

  Runtime runtime_;
};

std::set<std::uint32_t> indices(const std::vector<KernelId>& ids) {
  std::set<std::uint32_t> indices;
  for (const KernelId id : ids) indices.insert(id.index);
  EXPECT_EQ(indices.size(), ids.size()) << "one is named twice";
  return indices;
}

// A warmup of the manifest leaves nothing for a layer to compile, and compiles nothing in vain.
TEST(DeepseekV41Keys, OfAWarmedUpManifestAreThoseThatTheModelsLayersLaunch) {
  for (const u32 tp : {1u, 2u, 4u, 8u})
    for (const auto& [kv, record] : {std::pair{"fp8", Record::fp8}, {"nvfp4", Record::nvfp4}}) {
      SCOPED_TRACE("tp " + std::to_string(tp) + ", kv " + kv);
      auto runtime = Runtime::open({});
      ASSERT_TRUE(runtime && add_sources(*runtime));
      const auto manifest =
          model_manifest("deepseek-v4.1-flash", {{"tp", std::to_string(tp)}, {"kv", kv}});
      ASSERT_TRUE(manifest) << message_of(manifest);
      std::set<std::uint32_t> warm;
      for (const KernelSpec& spec : manifest->kernels) {
        const auto id = runtime->add(spec);
        ASSERT_TRUE(id) << message_of(id);
        warm.insert(id->index);
      }
      std::set<std::uint32_t> launched;
      for (const u32 ratio : {0u, 1u, 2u}) {
        const auto layer = DecodeAttention::create(
            *runtime, {.tp = tp, .ratio = ratio, .record = record}, device_of("sm_90a"));
        ASSERT_TRUE(layer) << message_of(layer);
        const auto ids = indices(layer->kernels());
        // Cache writer and mega; with a compressed cache its writer, and swap-AB for some heads.
        EXPECT_EQ(ids.size(), ratio == 0 ? 2u : tp == 2 || tp == 4 ? 4u : 3u);
        launched.insert(ids.begin(), ids.end());
      }
      EXPECT_EQ(launched, warm);
    }
}

TEST_F(DeepseekV41Layer, RegistersTwoSwapabKeysForTheFlashModel) {
  std::set<std::uint32_t> ids;
  std::size_t layers = 0;
  for (const u32 ratio : {0u, 0u, 2u, 2u, 1u, 1u}) {
    const auto layer = create({.tp = 4, .ratio = ratio, .record = Record::nvfp4});
    ++layers;
    const auto more = indices(layer.kernels());
    ids.insert(more.begin(), more.end());
  }
  EXPECT_EQ(layers, 6u);
  // 3 cache writers, 2 of swap-AB, 3 of mega: layers with equal keys share them.
  EXPECT_EQ(ids.size(), 8u);
  EXPECT_EQ(registered(), 8u);
  const auto key = [&](u32 page_slots) {
    return dsv41_decode::Key{
        .heads = 16, .record = Record::nvfp4, .swa_page_slots = 128, .page_slots = page_slots};
  };
  std::set<std::uint32_t> swapab;
  for (const u32 page_slots : {128u, 64u})
    swapab.insert(runtime_.add(dsv41_decode::swapab::spec_of(key(page_slots)))->index);
  EXPECT_EQ(swapab.size(), 2u);
  EXPECT_TRUE(std::includes(ids.begin(), ids.end(), swapab.begin(), swapab.end()));
}

TEST_F(DeepseekV41Layer, RegistersNoKernelThatItsStepsCannotTake) {
  const auto has_swapab = [&](const DecodeAttention& layer, const LayerOptions& options) {
    const auto id =
        runtime_.add(dsv41_decode::swapab::spec_of(decode_key(options, options.window)));
    return indices(layer.kernels()).count(id->index) != 0;
  };
  const LayerOptions plain{.tp = 4};
  EXPECT_TRUE(has_swapab(create(plain), plain));
  LayerOptions invariant = plain;
  invariant.batch_invariant = true;
  EXPECT_FALSE(has_swapab(create(invariant), invariant));

  LayerOptions widened = plain;
  widened.widened_window = 192;
  const auto wide = runtime_.add(dsv41_decode::mega::spec_of(decode_key(widened, 192)));
  ASSERT_TRUE(wide) << message_of(wide);
  EXPECT_EQ(indices(create(plain).kernels()).count(wide->index), 0u);
  EXPECT_EQ(indices(create(widened).kernels()).count(wide->index), 1u);
}

TEST_F(DeepseekV41Layer, IsRefusedWhereItCannotRunAndSaysWhy) {
  auto empty = Runtime::open({});
  ASSERT_TRUE(empty);
  EXPECT_FALSE(DecodeAttention::create(*empty, {}, device_of("sm_90a"))) << "no sources";
  EXPECT_EQ(message_of(DecodeAttention::create(runtime_, {.tp = 3}, device_of("sm_90a"))),
            message_of(check({.tp = 3})));
  for (const auto* architecture : {"sm_80", "sm_120a"}) {
    const auto made = DecodeAttention::create(runtime_, {}, device_of(architecture));
    ASSERT_FALSE(made) << architecture;
    EXPECT_EQ(made.error().code(), ErrorCode::unsupported);
    EXPECT_NE(message_of(made).find(architecture), std::string::npos) << message_of(made);
  }
  EXPECT_EQ(registered(), 0u);
}

TEST_F(DeepseekV41Layer, RefusesStepsThatAreNotItsOwnWithoutADevice) {
  const auto layer = create({.tp = 4});
  const auto says = [](const DecodeAttention& of, const Step& step, const char* text) {
    const auto message = message_of(of.prepare(step));
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  says(layer, {.tokens = 1, .swa_slots = 192},
       "swa_slots is 192; it must be the window of 128; steps with wider lists need "
       "LayerOptions::widened_window");
  says(layer, {.tokens = 1, .swa_slots = 64}, "swa_slots is 64");
  says(layer, {.tokens = 0}, "tokens is 0");
  says(layer, {.tokens = 1}, "query is null");
  const auto widened = create({.tp = 4, .widened_window = 192});
  says(widened, {.tokens = 1, .swa_slots = 256},
       "swa_slots is 256; it must be the window of 128 or the widened one of 192");
  says(widened, {.tokens = 1, .swa_slots = 192}, "query is null");
  int there = 0;
  says(create({.tp = 4, .ratio = 0}), {.tokens = 1, .compressed = {.base = &there}},
       "a layer of ratio 0 has no compressed cache");
  EXPECT_EQ(runtime_.counters(), RuntimeCounters{});
}

}  // namespace
}  // namespace kiln::kernels::deepseek_v41
