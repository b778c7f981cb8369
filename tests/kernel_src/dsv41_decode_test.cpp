// The decode programs without a device: what a call is checked for, and that what is shipped
// compiles into what was planned.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernel_src/dsv41_decode/launch.hpp"
#include "kernel_src/kernels.hpp"
#include "kiln/cache/store.hpp"
#include "support/runtime_fixture.hpp"
#include "tests/gpu/dsv41_decode_changes.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

using kiln::test::message_of;

/// A good call with made-up addresses.
Arguments good_arguments() {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  const auto ints = [at](std::uintptr_t address) {
    return static_cast<const std::int32_t*>(at(address));
  };
  return {.query = at(0x100000000),
          .positions = static_cast<const std::int64_t*>(at(0x200000008)),
          .cos_sin = static_cast<const float*>(at(0x300000000)),
          .sinks = static_cast<const float*>(at(0x400000004)),
          .swa_cache = at(0x500000000),
          .swa_slots = ints(0x600000004),
          .swa_lengths = ints(0x700000004),
          .compressed_cache = at(0x800000000),
          .compressed_slots = ints(0x900000004),
          .compressed_lengths = ints(0xa00000004),
          .output = at(0xb00000000),
          .output_scales = at(0xc00000004),
          .swa_page_stride_bytes = 64 * 528,
          .swa_pages = 10,
          .compressed_page_stride_bytes = 128 * 288,
          .compressed_pages = 20,
          .scale_group_stride_words = 32 * 4,
          .scale_column_stride_words = 4,
          .rope_positions = 4096,
          .tokens = 3};
}

const Key kNvfp4{.heads = 32, .record = Record::nvfp4, .page_slots = 128};

template <class T>
void move(T*& pointer, std::uintptr_t by) {
  pointer = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + by);
}

TEST(SwapabArguments, EachWrongOneIsNamedWithItsValueAndWhatIsAllowed) {
  ASSERT_TRUE(check(kNvfp4, good_arguments())) << message_of(check(kNvfp4, good_arguments()));
  struct Row {
    void (*spoil)(Arguments&);
    const char* says;
  };
  using A = Arguments;
  for (const auto& [spoil, says] : {
           Row{[](A& a) { a.query = nullptr; }, ": query is null; it must be a device pointer"},
           Row{[](A& a) { move(a.query, 8); },
               ": query is 0x100000008; it must be a multiple of 16"},
           Row{[](A& a) { a.positions = nullptr; }, ": positions is null"},
           Row{[](A& a) { move(a.positions, 4); },
               "positions is 0x20000000c; it must be a multiple of 8"},
           Row{[](A& a) { a.cos_sin = nullptr; }, ": cos_sin is null"},
           Row{[](A& a) { move(a.cos_sin, 4); },
               "cos_sin is 0x300000004; it must be a multiple of 16"},
           Row{[](A& a) { move(a.sinks, 2); }, "sinks is 0x400000006; it must be a multiple of 4"},
           Row{[](A& a) { a.swa_cache = nullptr; }, ": swa_cache is null"},
           Row{[](A& a) { move(a.swa_cache, 8); }, "swa_cache is 0x500000008"},
           Row{[](A& a) { a.swa_slots = nullptr; }, ": swa_slots is null"},
           Row{[](A& a) { move(a.swa_slots, 2); },
               "swa_slots is 0x600000006; it must be a multiple of 4"},
           Row{[](A& a) { a.swa_lengths = nullptr; }, ": swa_lengths is null"},
           Row{[](A& a) { move(a.swa_lengths, 1); }, "swa_lengths is 0x700000005"},
           Row{[](A& a) { a.compressed_cache = nullptr; }, ": compressed_cache is null"},
           Row{[](A& a) { move(a.compressed_cache, 4); }, "compressed_cache is 0x800000004"},
           Row{[](A& a) { a.compressed_slots = nullptr; }, ": compressed_slots is null"},
           Row{[](A& a) { move(a.compressed_slots, 2); }, "compressed_slots is 0x900000006"},
           Row{[](A& a) { a.compressed_lengths = nullptr; }, ": compressed_lengths is null"},
           Row{[](A& a) { move(a.compressed_lengths, 3); }, "compressed_lengths is 0xa00000007"},
           Row{[](A& a) { a.output = nullptr; }, ": output is null"},
           Row{[](A& a) { move(a.output, 8); },
               ": output is 0xb00000008; it must be a multiple of 16"},
           Row{[](A& a) { a.output_scales = nullptr; }, ": output_scales is null"},
           Row{[](A& a) { move(a.output_scales, 2); }, "output_scales is 0xc00000006"},
           Row{[](A& a) { a.swa_row_stride_bytes = 512; },
               "swa_row_stride_bytes is 512; it must be a multiple of 16 from 528"},
           Row{[](A& a) { a.swa_row_stride_bytes = 536; }, "swa_row_stride_bytes is 536"},
           Row{[](A& a) { a.swa_row_stride_bytes = (std::uint64_t{1} << 46) + 16; },
               "to 70368744177664"},
           Row{[](A& a) { a.swa_row_stride_bytes = 544; },
               "swa_page_stride_bytes is 33792; it must be a multiple of 16 from 34800"},
           Row{[](A& a) { a.swa_page_stride_bytes = 0; }, "swa_page_stride_bytes is 0"},
           Row{[](A& a) { a.swa_page_stride_bytes += 8; }, "swa_page_stride_bytes is 33800"},
           Row{[](A& a) { a.swa_page_stride_bytes = ~std::uint64_t{15}; },
               "swa_page_stride_bytes is 18446744073709551600"},
           Row{[](A& a) { a.swa_pages = 0; }, "swa_pages is 0; it must be from 1 to "},
           Row{[](A& a) { a.swa_pages = ~std::uint64_t{0}; }, "at this page stride"},
           Row{[](A& a) { a.compressed_row_stride_bytes = 272; },
               "compressed_row_stride_bytes is 272; it must be a multiple of 16 from 288"},
           Row{[](A& a) { a.compressed_row_stride_bytes = 300; },
               "compressed_row_stride_bytes is 300"},
           Row{[](A& a) { a.compressed_page_stride_bytes -= 16; },
               "compressed_page_stride_bytes is 36848; it must be a multiple of 16 from 36864"},
           Row{[](A& a) { a.compressed_page_stride_bytes += 4; },
               "compressed_page_stride_bytes is 36868"},
           Row{[](A& a) { a.compressed_pages = 0; }, "compressed_pages is 0"},
           Row{[](A& a) { a.output_stride_bytes = 32752; },
               "output_stride_bytes is 32752; it must be a multiple of 16 from 32768"},
           Row{[](A& a) { a.output_stride_bytes = 32776; }, "output_stride_bytes is 32776"},
           Row{[](A& a) { a.output_stride_bytes = std::uint64_t{1} << 41; }, "to 1099511627776"},
           Row{[](A& a) { a.scale_column_stride_words = 2; },
               "scale_column_stride_words is 2; it must be from 3"},
           Row{[](A& a) { a.scale_group_stride_words = 0; },
               "scale_group_stride_words is 0; it must be from 3"},
           Row{[](A& a) { a.scale_group_stride_words = 126; },
               "scale_group_stride_words is 126; with columns of 4 words the groups overlap; it "
               "must "
               "be at least 127"},
           Row{[](A& a) { a.scale_group_stride_words = ~std::uint64_t{0}; },
               "scale_group_stride_words is 18446744073709551615"},
           Row{[](A& a) { a.tokens = 65536; }, "tokens is 65536; it must be at most 65535"},
           Row{[](A& a) { a.rope_positions = 0; }, "rope_positions is 0; it must be from 1"},
           Row{[](A& a) { a.rope_positions = ~std::uint64_t{0}; }, "to 281474976710656"},
           Row{[](A& a) { a.output = const_cast<void*>(a.query); },
               ": output is over query; what is written must lie apart"},
           Row{[](A& a) { a.query = static_cast<char*>(a.output) - 2 * 65536; },
               ": output is over query"},
           Row{[](A& a) { a.output = const_cast<void*>(a.compressed_cache); },
               ": output is over compressed_cache"},
           Row{[](A& a) { a.output_scales = const_cast<float*>(a.cos_sin + 4095 * 64); },
               ": output_scales is over cos_sin"},
           Row{[](A& a) { a.output_scales = static_cast<char*>(a.output) + 16380; },
               ": output_scales is over output"},
       }) {
    Arguments arguments = good_arguments();
    spoil(arguments);
    const Status status = check(kNvfp4, arguments);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(status).find(says), std::string::npos) << message_of(status);
  }
}

TEST(SwapabArguments, OutputsMayLieInTheGapsOfOthers) {
  Arguments arguments = good_arguments();
  arguments.swa_row_stride_bytes = 65536;
  arguments.swa_page_stride_bytes = 64 * 65536;
  arguments.output = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(arguments.swa_cache) +
                                             528);  // behind a record
  arguments.output_stride_bytes = 65536;
  arguments.output_scales = static_cast<char*>(arguments.output) + 16384;  // behind 32 heads
  EXPECT_TRUE(check(kNvfp4, arguments)) << message_of(check(kNvfp4, arguments));
}

TEST(SwapabArguments, WhatIsNotNeededMayBeMissing) {
  Arguments arguments = good_arguments();
  arguments.sinks = nullptr;
  EXPECT_TRUE(check(kNvfp4, arguments));
  EXPECT_TRUE(check(kNvfp4, Arguments{})) << "nothing is needed for no tokens";
  EXPECT_FALSE(check(Key{.heads = 5}, Arguments{}));
  arguments.compressed_cache = arguments.compressed_slots = arguments.compressed_lengths = nullptr;
  EXPECT_TRUE(check(Key{.compressed_slots = 0}, arguments));
  // A group's columns may lie inside another's, as when groups are the faster dimension.
  arguments = good_arguments();
  arguments.scale_group_stride_words = 4;
  arguments.scale_column_stride_words = 32;
  EXPECT_TRUE(check(kNvfp4, arguments));
}

TEST(SwapabArguments, BecomeWhatTheProgramReads) {
  Arguments arguments = good_arguments();
  Args args = args_of(kNvfp4, arguments);
  EXPECT_EQ(args.query, arguments.query);
  EXPECT_EQ(args.positions, arguments.positions);
  EXPECT_EQ(args.cos_sin, arguments.cos_sin);
  EXPECT_EQ(args.sinks, arguments.sinks);
  EXPECT_EQ(args.swa.base, arguments.swa_cache);
  EXPECT_EQ(args.swa.slots, arguments.swa_slots);
  EXPECT_EQ(args.swa.lengths, arguments.swa_lengths);
  EXPECT_EQ(args.swa.page_stride_bytes, 64 * 528u);
  EXPECT_EQ(args.swa.row_stride_bytes, 528u);
  EXPECT_EQ(args.swa.cache_slots, 640u);
  EXPECT_EQ(args.compressed.base, arguments.compressed_cache);
  EXPECT_EQ(args.compressed.slots, arguments.compressed_slots);
  EXPECT_EQ(args.compressed.lengths, arguments.compressed_lengths);
  EXPECT_EQ(args.compressed.page_stride_bytes, 128 * 288u);
  EXPECT_EQ(args.compressed.row_stride_bytes, 288u);
  EXPECT_EQ(args.compressed.cache_slots, 2560u);
  EXPECT_EQ(args.output, arguments.output);
  EXPECT_EQ(static_cast<void*>(args.output_scales), arguments.output_scales);
  EXPECT_EQ(args.output_stride_bytes, 32768u);
  EXPECT_EQ(args.scale_group_stride_words, 128u);
  EXPECT_EQ(args.scale_column_stride_words, 4u);
  EXPECT_EQ(args.rope_positions, 4096u);
  arguments.swa_row_stride_bytes = 544;
  arguments.compressed_row_stride_bytes = 304;
  arguments.output_stride_bytes = 40000;
  args = args_of(kNvfp4, arguments);
  EXPECT_EQ(args.swa.row_stride_bytes, 544u);
  EXPECT_EQ(args.compressed.row_stride_bytes, 304u);
  EXPECT_EQ(args.output_stride_bytes, 40000u);
}

class SwapabProgram : public kiln::test::RuntimeFixture {};

TEST_F(SwapabProgram, IsRegisteredOncePerKeyAndRefusesBadCallsWithoutADevice) {
  auto runtime = open();
  EXPECT_FALSE(SwapabDecode::create(runtime, Key{})) << "the sources are missing";
  ASSERT_TRUE(add_sources(runtime));
  EXPECT_EQ(message_of(SwapabDecode::create(runtime, Key{.heads = 64})),
            message_of(swapab::check_key({.heads = 64})));
  const auto decode = SwapabDecode::create(runtime, kNvfp4);
  ASSERT_TRUE(decode) << message_of(decode);
  EXPECT_EQ(decode->key(), kNvfp4);
  EXPECT_EQ(runtime.add(swapab::spec_of(kNvfp4))->index, decode->id().index);
  EXPECT_NE(SwapabDecode::create(runtime, Key{})->id().index, decode->id().index);
  Arguments arguments = good_arguments();
  arguments.tokens = 0;
  EXPECT_TRUE(decode->launch(arguments, nullptr));
  EXPECT_NE(message_of(decode->prepare(arguments)).find("tokens is 0"), std::string::npos);
  arguments.tokens = 65536;
  arguments.scale_column_stride_words = 65536;
  arguments.scale_group_stride_words = 32 * 65536;
  EXPECT_NE(
      message_of(decode->prepare(arguments)).find("tokens is 65536; it must be at most 65535"),
      std::string::npos);
  arguments.tokens = 65535;
  arguments.query = nullptr;
  EXPECT_NE(message_of(decode->prepare(arguments)).find("query is null"), std::string::npos);
  EXPECT_EQ(runtime.counters(), RuntimeCounters{});
}

TEST_F(SwapabProgram, CompilesWithoutSpillsFromTheArchitecturesOwnFile) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "NVRTC compiles the same as in the release build, for a while";
#endif
  auto runtime = open();
  ASSERT_TRUE(add_sources(runtime));
  const auto store = cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store);
  struct Row {
    Key key;
    std::vector<std::string> architectures;
  };
  // All values of all fields, but not all of their products: a compile takes more than a second.
  const std::vector<Row> rows = {
      {{.heads = 16, .page_slots = 64}, {"sm_90a", "sm_100a", "sm_103a"}},
      {kNvfp4, {"sm_90a", "sm_100a", "sm_103a"}},
      {{.heads = 32, .page_slots = 128}, {"sm_90a"}},
      {{.heads = 16, .record = Record::nvfp4, .page_slots = 64}, {"sm_90a"}}};
  for (const Row& row : rows) {
    ASSERT_TRUE(SwapabDecode::create(runtime, row.key));
    // As many at a time as there are processors; what is compiled is not compiled again.
    ASSERT_TRUE(runtime.warmup({.architectures = row.architectures}));
  }
  for (const auto& [key, architectures] : rows)
    for (const std::string& architecture : architectures) {
      SCOPED_TRACE(architecture + ", " + std::to_string(key.heads) + " heads, record " +
                   std::to_string(static_cast<unsigned>(key.record)));
      const auto decode = SwapabDecode::create(runtime, key);
      ASSERT_TRUE(decode) << message_of(decode);
      const auto artifact = runtime.artifact(decode->id(), architecture);
      ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
      const ArtifactFacts& facts = artifact->facts;
      EXPECT_TRUE(facts.waits_on_grid);
      EXPECT_TRUE(facts.triggers_dependents);
      EXPECT_EQ(facts.usage.spill_store_bytes + facts.usage.spill_load_bytes, 0u);
      EXPECT_EQ(facts.usage.local_bytes, 0u);
      EXPECT_EQ(facts.usage.static_shared_bytes, 0u) << "all of it is planned";
      // 512 threads have 65536 registers.
      EXPECT_LE(facts.usage.registers, 128u);
      EXPECT_EQ(facts.bounds.max_threads, 512u);
      EXPECT_EQ(facts.parameter_bytes, sizeof(Args));
      EXPECT_EQ(facts.log, "");  // above all not that products run one after another
      const auto entry = store->read(artifact->key);
      ASSERT_TRUE(entry) << message_of(entry);
      const std::string_view key_text = entry->key_text();
      const auto names = [key_text](std::string_view file) {
        return key_text.find(" kernel_src/dsv41_decode/" + std::string(file) + ' ') !=
               std::string_view::npos;
      };
      EXPECT_EQ(names("swapab_sm90a.cu"), architecture == "sm_90a");
      EXPECT_EQ(names("swapab.cu"), architecture != "sm_90a");
      EXPECT_TRUE(names("swapab.cuh"));
    }
  EXPECT_EQ(runtime.counters().compiles, 8u);
}

// What tests on a device are seen to fail with: it has to follow the program.
TEST_F(SwapabProgram, CompilesWithEachChangeToIt) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "NVRTC compiles the same as in the release build, for a while";
#endif
  for (const Change* change : kChanges) {
    SCOPED_TRACE(change->what);
    auto changed = open();
    const auto added = kiln::test::add_changed_sources(changed, change->edits);
    ASSERT_TRUE(added) << message_of(added);
    const auto kernel = changed.add(change->padded_heads ? mega::spec_of(change->key)
                                                         : swapab::spec_of(change->key));
    ASSERT_TRUE(kernel) << message_of(kernel);
    const auto artifact = changed.artifact(*kernel, "sm_90a");
    ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
    EXPECT_EQ(artifact->facts.log, "");
  }
}

TEST_F(SwapabProgram, OfPaddedHeadsCompilesWithHardlyAnySpills) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "NVRTC compiles the same as in the release build, for a while";
#endif
  auto runtime = open();
  ASSERT_TRUE(add_sources(runtime));
  struct Row {
    Key key;
    std::string architecture;
    std::uint64_t most_spilled;  // bytes: in some instances a register or two are missing
  };
  const std::vector<Row> rows = {{{.heads = 64}, "sm_90a", 0},
                                 {{.heads = 16, .record = Record::nvfp4}, "sm_90a", 0},
                                 {{.heads = 8, .compressed_slots = 0}, "sm_90a", 4},
                                 {{.heads = 64}, "sm_100a", 0},
                                 {{.heads = 64, .record = Record::nvfp4}, "sm_103a", 16}};
  for (const auto& [key, architecture, most_spilled] : rows) {
    SCOPED_TRACE(architecture + ", " + std::to_string(key.heads) + " heads, record " +
                 std::to_string(static_cast<unsigned>(key.record)));
    const auto decode = MegaDecode::create(runtime, key);
    ASSERT_TRUE(decode) << message_of(decode);
    const auto artifact = runtime.artifact(decode->id(), architecture);
    ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
    const ArtifactFacts& facts = artifact->facts;
    EXPECT_TRUE(facts.waits_on_grid);
    EXPECT_TRUE(facts.triggers_dependents);
    EXPECT_LE(facts.usage.spill_store_bytes, most_spilled);
    EXPECT_EQ(facts.usage.static_shared_bytes, 0u) << "all of it is planned";
    EXPECT_LE(facts.usage.registers, 128u);
    EXPECT_EQ(facts.bounds.max_threads, 512u);
    EXPECT_EQ(facts.parameter_bytes, sizeof(Args));
    EXPECT_EQ(facts.log, "");
  }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
