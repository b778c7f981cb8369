// kiln plan: the plan of a call as JSON and as lines, and what it refuses.
#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class PlanVerb : public CliTest {
 protected:
  ProcessResult plan(const std::string& heads, const std::string& batch, const std::string& query,
                     const std::string& keys, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"plan", "kimi_k3_mla", "--heads", heads,  "--batch",
                                          batch,  "--q",         query,     "--kv", keys};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kiln(arguments);
  }
};

TEST_F(PlanVerb, GivesAPlanAsJson) {
  const struct {
    std::vector<std::string> problem;
    std::vector<std::string> more;
    const char* route;
    unsigned row_tile, num_split, unsplit_items;
    const char* reducer;
    std::vector<unsigned> grid;
    std::uint64_t workspace_bytes;
  } rows[] = {
      {{"12", "8", "1", "342305"},
       {"--sms", "148"},
       "row_tile",
       16,
       18,
       0,
       "w4",
       {18, 1, 8},
       std::uint64_t{96} * 18 * 1032},
      {{"12", "8", "1", "342305"},
       {"--constants", "h200"},
       "row_tile",
       16,
       16,
       0,
       "w4",
       {16, 1, 8},
       std::uint64_t{96} * 16 * 1032},
      {{"96", "2", "512", "32768"},
       {},
       "wide",
       128,
       5,
       740,
       "w1",
       {2 * (740 + 28 * 5), 1, 1},
       std::uint64_t{28} * 128 * 5 * 1032},
      {{"96", "1", "2048", "131072"},
       {"--constants", "published"},
       "wide",
       128,
       1,
       0,
       "none",
       {3072, 1, 1},
       0},
      {{"96", "8", "8", "8000"},
       {"--constants", "h200"},
       "row_tile",
       96,
       1,
       0,
       "none",
       {2, 8, 8},
       0},
      {{"12", "0", "1", "4096"}, {}, "row_tile", 16, 1, 0, "none", {0, 1, 1}, 0},
  };
  for (const auto& row : rows) {
    auto more = row.more;
    more.emplace_back("--json");
    const auto result = plan(row.problem[0], row.problem[1], row.problem[2], row.problem[3], more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto object = object_of(result);
    EXPECT_EQ(object["route"], row.route) << result.out;
    EXPECT_EQ(object["row_tile"], row.row_tile) << result.out;
    EXPECT_EQ(object["num_split"], row.num_split) << result.out;
    EXPECT_EQ(object["unsplit_items"], row.unsplit_items) << result.out;
    EXPECT_EQ(object["reducer"], row.reducer) << result.out;
    EXPECT_EQ(object["grid"], nlohmann::json(row.grid)) << result.out;
    EXPECT_EQ(object["workspace_bytes"], row.workspace_bytes) << result.out;
    EXPECT_FALSE(object["reasons"].empty()) << result.out;
  }
}

TEST_F(PlanVerb, SaysWhyInLines) {
  const auto result = plan("12", "8", "1", "342305", {"--sms", "148"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const auto* said :
       {"route            row_tile\n", "splits           18\n", "reducer          w4",
        "workspace        1783296 bytes\n", "  split: 18; 148 SMs hold"})
    EXPECT_NE(result.out.find(said), std::string::npos) << said << "\n" << result.out;
}

TEST_F(PlanVerb, RefusesWhatIsNoCall) {
  const std::pair<std::vector<std::string>, std::string> faults[] = {
      {{"plan"}, "KERNEL"},
      {{"plan", "nope", "--heads", "12", "--batch", "8", "--q", "1", "--kv", "1"}, "kimi_k3_mla"},
      {{"plan", "kimi_k3_mla", "--heads", "12", "--batch", "8", "--q", "1"}, "--kv"},
      {{"plan", "kimi_k3_mla", "--heads", "0", "--batch", "8", "--q", "1", "--kv", "1"}, "--heads"},
      {{"plan", "kimi_k3_mla", "--heads", "129", "--batch", "8", "--q", "1", "--kv", "1"}, "128"},
      {{"plan", "kimi_k3_mla", "--heads", "x", "--batch", "8", "--q", "1", "--kv", "1"}, "--heads"},
      {{"plan", "kimi_k3_mla", "--heads", "12", "--batch", "-1", "--q", "1", "--kv", "1"},
       "--batch"},
      {{"plan", "kimi_k3_mla", "--heads", "12", "--batch", "65536", "--q", "1", "--kv", "1"},
       "65535"},
      {{"plan", "kimi_k3_mla", "--heads", "12", "--batch", "1", "--q", "1", "--kv", "2147483648"},
       "--kv"},
      {{"plan", "kimi_k3_mla", "--heads", "012", "--batch", "1", "--q", "1", "--kv", "1"},
       "--heads: 012 must be decimal digits without a 0 before them"},
      // Each is allowed alone; together they are too many for a grid.
      {{"plan", "kimi_k3_mla", "--heads", "128", "--batch", "1", "--q", "65536", "--kv", "4096"},
       "row tiles of a request is 87382; it must be at most 65535"},
  };
  for (const auto& [arguments, said] : faults) {
    const auto result = kiln(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(said), std::string::npos) << said << ": " << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(plan("12", "8", "1", "1", {"--sms", "0"}).exit_code, 2);
  const auto set = plan("12", "8", "1", "1", {"--constants", "b300", "--json"});
  EXPECT_EQ(set.exit_code, 2);
  const auto message = object_of(set)["error"]["message"].get<std::string>();
  EXPECT_NE(message.find("published,h200"), std::string::npos) << message;
}

}  // namespace
}  // namespace kiln::test
