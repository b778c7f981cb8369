// Receipts as documents and as lines, and the comparison of outputs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kiln/bench/receipt.hpp"
#include "runtime/bench/outputs.hpp"

namespace kiln::bench {
namespace {

Receipt some_receipt(double candidate, unsigned sm_mhz) {
  Probe probe;
  probe.sample = [candidate](Side side) -> Result<double> {
    return side == Side::baseline ? 10.0 : candidate;
  };
  probe.clock = [sm_mhz]() -> Result<Clock> {
    return Clock{.sm_mhz = sm_mhz, .most_sm_mhz = 1980, .throttle_reasons = 4};
  };
  auto comparison = compare(probe, {.rounds = 8});
  EXPECT_TRUE(comparison);
  comparison->baseline = "plain";
  comparison->candidate = "PDL";
  return {.name = "a row",
          .timing = timing_text({}),
          .comparison = *std::move(comparison),
          .provenance = {.device = "NVIDIA H200", .commit = "abc", .key = "0123", .pinned = true}};
}

TEST(BenchReceipt, HoldsTheFiguresLimitsSamplesAndWhereItRan) {
  const auto json = nlohmann::json::parse(to_json(some_receipt(9, 1980)), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["name"], "a row");
  EXPECT_EQ(json["timing"], "graph of 20 calls, 10 replays, warm L2");
  EXPECT_EQ(json["baseline"], "plain");
  EXPECT_EQ(json["candidate"], "PDL");
  EXPECT_EQ(json["claim"], "faster");
  EXPECT_EQ(json["verdict"], "held");
  EXPECT_TRUE(json["faults"].empty());
  EXPECT_EQ(json["limits"]["win_ratio"], 0.94);
  EXPECT_EQ(json["limits"]["most_disagreement"], 0.02);
  EXPECT_EQ(json["figures"]["ratio"], 0.9);
  EXPECT_EQ(json["figures"]["baseline"]["median"], 10);
  EXPECT_EQ(json["figures"]["baseline"]["n"], 8);
  EXPECT_EQ(json["clocks"]["median_sm_mhz"], 1980);
  EXPECT_EQ(json["clocks"]["throttle_reasons"], 4);
  ASSERT_EQ(json["attempts"].size(), 1u);
  EXPECT_EQ(json["attempts"][0]["samples"]["candidate"].size(), 8u);
  EXPECT_EQ(json["attempts"][0]["samples"]["aa_second"][7], 10);
  EXPECT_EQ(json["provenance"]["device"], "NVIDIA H200");
  EXPECT_EQ(json["provenance"]["key"], "0123");
  EXPECT_EQ(json["provenance"]["pinned"], true);
  EXPECT_TRUE(json["provenance"]["toolkit"].is_null()) << "not known";
}

TEST(BenchReceipt, ARefusedRowKeepsItsFiguresAndSaysThatItIsRefused) {
  const auto receipt = some_receipt(5, 1000);
  const auto json = nlohmann::json::parse(to_json(receipt), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["verdict"], "refused");
  EXPECT_EQ(json["attempts"].size(), 2u);
  EXPECT_EQ(json["faults"].size(), 1u);
  EXPECT_EQ(json["attempts"][0]["faults"], json["faults"]);
  EXPECT_EQ(json["figures"]["ratio"], 0.5);
  const auto row = table_row(receipt);
  EXPECT_NE(row.find("0.5000"), std::string::npos) << row;
  EXPECT_NE(row.find("faster: refused (second attempt)\n    refused: the SM clock"),
            std::string::npos)
      << row;
}

TEST(BenchReceipt, ColumnsOfTheTableLineUp) {
  const auto head = table_head();
  const auto row = table_row(some_receipt(9, 1980));
  EXPECT_EQ(head.find("verdict"), row.find("faster: held")) << head << "\n" << row;
}

TEST(BenchReceipt, TextThatIsNotUtf8IsReplaced) {
  auto receipt = some_receipt(9, 1980);
  receipt.provenance.device = "\xff";
  EXPECT_TRUE(nlohmann::json::parse(to_json(receipt), nullptr, false).is_object());
}

TEST(BenchReceipt, ProvenanceKnowsItsOwnBuild) {
  const auto here = provenance();
  EXPECT_NE(here.compiler, "");
  EXPECT_NE(here.commit, "");
}

TEST(BenchReceipt, TimingsAreNamed) {
  EXPECT_EQ(timing_text({.l2 = L2::cold, .calls = 10}),
            "graph of 10 calls, each after a flush, cold L2");
}

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(BenchOutputs, TheFirstDifferenceIsNamed) {
  const std::vector<Bytes> first = {bytes_of({1, 2}), bytes_of({3, 4, 5})};
  EXPECT_EQ(first_difference(first, first), "");
  EXPECT_EQ(first_difference({}, {}), "");
  auto second = first;
  second[1][2] = std::byte{9};
  EXPECT_EQ(first_difference(first, second), "output 1 at byte 2 is 5, then 9");
  second[1].pop_back();
  EXPECT_EQ(first_difference(first, second), "output 1 has 3 bytes, then 2");
  second.pop_back();
  EXPECT_EQ(first_difference(first, second), "one arm has 2 outputs, the other 1");
}

}  // namespace
}  // namespace kiln::bench
