// The programs of Kimi-K3 MLA as NVRTC makes them: what they take of a multiprocessor, and from
// which file they come.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "kernel_src/kimi_k3_mla/launch.hpp"
#include "kernel_src/kimi_k3_mla/table_check.hpp"
#include "support/runtime_fixture.hpp"
#include "tests/gpu/kimi_k3_mla_changes.hpp"
#include "tests/gpu/kimi_k3_mla_reference.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

using kiln::test::message_of;

class KimiK3MlaProgram : public kiln::test::RuntimeFixture {};

TEST_F(KimiK3MlaProgram, SpillsNothingAndOverlapsItsProducts) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "NVRTC compiles the same as in the release build, for a while";
#endif
  auto runtime = open();
  ASSERT_TRUE(add_sources(runtime));
  const auto store = cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store);
  struct Row {
    std::string architecture;
    Programs programs;
  };
  const std::vector<Row> rows = {
      {"sm_90a", {.attend = {{16}, {32}, {48}, {64}, {96}, {128}}, .reduce = {{0}, {1}, {2}, {4}}}},
      {"sm_100a", {.attend = {{128}}}}};
  for (const auto& [architecture, programs] : rows) {
    const auto attention = Attention::create(runtime, programs);
    ASSERT_TRUE(attention) << message_of(attention);
    // As many at a time as there are processors.
    ASSERT_TRUE(runtime.warmup({.architectures = {architecture}}));
    for (std::size_t i = 0; i < attention->kernels().size(); ++i) {
      const bool reduces = i >= programs.attend.size();
      SCOPED_TRACE(architecture + (reduces ? ", reducer " : ", row tile ") +
                   std::to_string(reduces ? programs.reduce[i - programs.attend.size()].row_warps
                                          : programs.attend[i].row_tile));
      const auto artifact = runtime.artifact(attention->kernels()[i], architecture);
      ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
      const ArtifactFacts& facts = artifact->facts;
      EXPECT_EQ(facts.usage.spill_store_bytes + facts.usage.spill_load_bytes, 0u);
      EXPECT_EQ(facts.usage.local_bytes, 0u);
      EXPECT_EQ(facts.log, "");  // above all not that products run one after another
      if (reduces) {
        EXPECT_TRUE(facts.waits_on_grid);
        EXPECT_LE(facts.usage.registers, 64u);
        EXPECT_EQ(facts.bounds.max_threads, 256u);
        EXPECT_EQ(facts.parameter_bytes, sizeof(Args));
        // It finds room beside attention of 16 rows; each block takes 1 KiB more than it asks for.
        EXPECT_LE(facts.usage.static_shared_bytes + attend::layout(16).bytes + 2 * 1024,
                  228u * 1024);
        continue;
      }
      EXPECT_TRUE(facts.triggers_dependents);
      EXPECT_EQ(facts.usage.static_shared_bytes, 0u) << "all of it is planned";
      // 384 threads have 65536 registers; two warpgroups take 240 of them each, one 24. Those of 16
      // rows leave 256 threads of the reducer 64 each.
      const bool leaves_room = programs.attend[i].row_tile == 16;
      EXPECT_LE(facts.usage.registers, leaves_room ? 128u : 168u);
      EXPECT_EQ(facts.bounds.max_threads, leaves_room ? 512u : attend::kBlockThreads);
      // On sm_90a parameters start at 528 of the constant bank, and the maps at a multiple of 128.
      const std::size_t before = architecture == "sm_90a" ? 112 : 0;
      EXPECT_EQ(facts.parameter_bytes, before + 2 * sizeof(TensorMap) + sizeof(Args));
      const auto entry = store->read(artifact->key);
      ASSERT_TRUE(entry) << message_of(entry);
      const auto names = [&](std::string_view file) {
        return entry->key_text().find(" kernel_src/kimi_k3_mla/" + std::string(file) + ' ') !=
               std::string_view::npos;
      };
      EXPECT_EQ(names("attend_sm90a.cu"), architecture == "sm_90a");
      EXPECT_EQ(names("attend.cu"), architecture != "sm_90a");
      EXPECT_TRUE(names("attend.cuh"));
    }
  }
}

// What only a device can run is compiled here at least.
TEST_F(KimiK3MlaProgram, CompilesWhatTheDeviceTestsRunBesideIt) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "NVRTC compiles the same as in the release build, for a while";
#endif
  auto runtime = open();
  ASSERT_TRUE(add_sources(runtime));
  ASSERT_TRUE(runtime.add_source(kReferenceName, kReferenceSource));
  const auto reference = runtime.add({.name = "reference", .source = std::string(kReferenceName)});
  ASSERT_TRUE(reference) << message_of(reference);
  const auto compiled = runtime.artifact(*reference, "sm_90a");
  ASSERT_TRUE(compiled) << message_of(compiled) << compiled.error().detail();
  EXPECT_EQ(compiled->facts.log, "");
  EXPECT_EQ(compiled->facts.usage.local_bytes, 0u);
  const auto check = TableCheck::create(runtime);
  ASSERT_TRUE(check) << message_of(check);
  for (const auto* architecture : {"sm_90a", "sm_100a"}) {
    const auto artifact = runtime.artifact(check->kernel(), architecture);
    ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
    EXPECT_EQ(artifact->facts.log, "");
    EXPECT_EQ(artifact->facts.usage.local_bytes, 0u);
    EXPECT_EQ(artifact->facts.bounds.max_threads, 1024u);
    EXPECT_LE(artifact->facts.usage.registers, 64u);
  }
  for (const Change* change : kChanges) {
    SCOPED_TRACE(change->what);
    auto changed = open();
    const auto added = add_changed_sources(changed, *change);
    ASSERT_TRUE(added) << message_of(added);
    const auto attention =
        Attention::create(changed, {.attend = {{change->row_tile}}, .reduce = {}});
    ASSERT_TRUE(attention) << message_of(attention);
    const auto artifact = changed.artifact(attention->kernels()[0], "sm_90a");
    ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
    EXPECT_EQ(artifact->facts.log, "");
    EXPECT_EQ(artifact->facts.usage.local_bytes, 0u);
  }
}

TEST(KimiK3MlaLayout, FitsABlockOfEveryShippedArchitecture) {
  constexpr u32 most = 227 * 1024;  // sm_90a, sm_100a, sm_103a
  for (const u32 row_tile : {16u, 32u, 48u, 64u, 96u, 128u}) {
    SCOPED_TRACE(row_tile);
    const auto at = attend::layout(row_tile);
    EXPECT_LE(at.bytes, most);
    // TMA's swizzle repeats every 1024 bytes, and so do the matrix units' descriptors.
    EXPECT_EQ(at.pages % 1024, 0u);
    EXPECT_EQ(at.query % 1024, 0u);
    EXPECT_EQ(at.weights % 1024, 0u);
    EXPECT_EQ(attend::kPageBytes % 1024, 0u);
    EXPECT_EQ(at.barriers % 8, 0u);
  }
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
