#include "runtime/artifact_facts.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/runtime/fake_cubin.hpp"

namespace kiln {
namespace {

ArtifactFacts example() {
  return {.kernel = "scale",
          .architecture = "sm_90a",
          .symbol = "entry",
          .toolchain = "NVRTC 13.0",
          .usage = {.registers = 16, .static_shared_bytes = 400, .local_bytes = 8},
          .parameters = {{112, 128}, {240, 8}},
          .parameter_bytes = 248,
          .bounds = {.max_threads = 96,
                     .block_threads = {64, 1, 1},
                     .cluster_blocks = {2, 1, 1},
                     .max_cluster_blocks = 7},
          .waits_on_grid = true,
          .triggers_dependents = true,
          .log = "a \"warning\""};
}

constexpr const char* kGolden =
    R"({"architecture":"sm_90a","block_threads":[64,1,1],"cluster_blocks":[2,1,1],"kernel":"scale",)"
    R"("local_bytes":8,"log":"a \"warning\"","max_cluster_blocks":7,"max_threads":96,)"
    R"("parameter_bytes":248,"parameters":[[112,128],[240,8]],"registers":16,)"
    R"("spill_load_bytes":0,"spill_store_bytes":0,"static_shared_bytes":400,"symbol":"entry",)"
    R"("toolchain":"NVRTC 13.0","triggers_dependents":true,"waits_on_grid":true})";

TEST(ArtifactFacts, AreOneTextAndBack) {
  EXPECT_EQ(to_json(example()), kGolden);
  const auto read = facts_from_json(kGolden);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->parameters, example().parameters);
  EXPECT_EQ(read->bounds, example().bounds);
  EXPECT_EQ(to_json(*read), kGolden);
  // A kernel without parameters has an empty table, not none.
  EXPECT_EQ(nlohmann::json::parse(to_json({})).at("parameters"), nlohmann::json::array());
}

TEST(ArtifactFacts, OfAnotherFormAreRefused) {
  const auto golden = nlohmann::json::parse(kGolden);
  const auto wrong =
      nlohmann::json::parse(R"([null, -1, 4294967296, "text", [1, 2], [[1, 2, 3]], [[1, -2]]])");
  for (const auto& [name, value] : golden.items()) {
    for (const auto& other : wrong) {
      if (other.is_string() && value.is_string()) continue;
      auto facts = golden;
      facts[name] = other;
      EXPECT_FALSE(facts_from_json(facts.dump())) << facts.dump();
    }
    auto without = golden;
    without.erase(name);
    const bool later = name == "parameters" || name == "parameter_bytes" || name == "max_threads" ||
                       name == "block_threads" || name == "cluster_blocks" ||
                       name == "max_cluster_blocks" || name == "triggers_dependents";
    EXPECT_EQ(facts_from_json(without.dump()).has_value(), later) << name;
  }
  for (const auto* text : {"", "{", "[]", "null", "{}"}) EXPECT_FALSE(facts_from_json(text));
  // One fact twice.
  EXPECT_FALSE(facts_from_json(R"({"log":"",)" + std::string(kGolden).substr(1)));
}

// Such as later versions may add: they are passed over, whatever is in them.
TEST(ArtifactFacts, ThatNobodyKnowsChangeNothing) {
  for (const auto* unknown :
       {"1", "-1", "1e300", "null", "\"text\"", "[1, 2, 3]", "[[1], {\"log\": [7]}]", "{}",
        R"({"major": 64, "registers": "many", "log": {"parameters": [[1, 2]]}})"}) {
    const auto read =
        facts_from_json(R"({"abi":)" + std::string(unknown) + "," + std::string(kGolden).substr(1));
    ASSERT_TRUE(read) << unknown;
    EXPECT_EQ(to_json(*read), kGolden) << unknown;
  }
  // Nor do they lend a fact what it lacks.
  auto two = nlohmann::json::parse(kGolden);
  two["block_threads"] = {1, 1};
  EXPECT_FALSE(facts_from_json(R"({"abi":{"major":64},)" + two.dump().substr(1)));
}

TEST(ArtifactFacts, TheCubinOverridesWhatIsThere) {
  const auto cubin = test::cubin_bytes(
      90, {{.name = "entry", .code = {{0x782E, 0x000FE20000000000}}}, {.name = "other"}});
  const auto bytes = std::as_bytes(std::span(cubin));
  const auto info = inspect_cubin(bytes);
  ASSERT_TRUE(info) << info.error().message();
  auto facts = example();
  ASSERT_TRUE(read_cubin_facts(*info, facts).ok());
  EXPECT_TRUE(facts.waits_on_grid);
  EXPECT_FALSE(facts.triggers_dependents);
  EXPECT_TRUE(facts.parameters.empty());
  EXPECT_EQ(facts.parameter_bytes, 0u);
  EXPECT_EQ(facts.bounds, LaunchBounds{});
  EXPECT_EQ(facts.usage.static_shared_bytes, 0u);
  EXPECT_EQ(facts.usage.local_bytes, 8u);  // the assembler's log tells this
  facts.symbol = "other";
  ASSERT_TRUE(read_cubin_facts(*info, facts).ok());
  EXPECT_FALSE(facts.waits_on_grid);
  facts.symbol = "nobody";
  EXPECT_EQ(read_cubin_facts(*info, facts).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kiln
