// The report of a warmup as JSON, as a trace and as a page, and the counters for Prometheus.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

using nlohmann::json;

class WarmupReportTest : public FakeCompilerFixture {
 protected:
  WarmupReport report() {
    auto runtime = open(fake_options());
    add(runtime, "good", "slow 5");
    EXPECT_TRUE(runtime.add_source("evil.cu", "// evil\n"));
    EXPECT_TRUE(runtime.add({.name = "<b>&\"evil\x1b[31m", .source = "evil.cu"}));
    add(runtime, "bad", "fail");
    auto made = runtime.warmup({.architectures = {kArch}});
    EXPECT_TRUE(made);
    counters_ = runtime.counters();
    return *std::move(made);
  }
  RuntimeCounters counters_{};
};

TEST_F(WarmupReportTest, JsonHoldsEveryKernelWithItsTimes) {
  auto made = report();
  made.kernels[0].load = std::chrono::milliseconds(2);
  made.kernels[0].usage.registers = 40;
  made.kernels[0].usage.spill_store_bytes = 8;
  made.kernels[0].log = "not UTF-8: \xff";
  const auto read = json::parse(to_json(made), nullptr, false);
  ASSERT_TRUE(read.is_object());
  EXPECT_EQ(read["requested"], 3);
  EXPECT_EQ(read["failed"], 1);
  EXPECT_EQ(read["load_ms"], 2.0);
  EXPECT_GE(read["compile_ms"].get<double>(), 5.0);
  const auto& good = read["kernels"][0];
  EXPECT_EQ(good["kernel"], "good");
  EXPECT_EQ(good["origin"], "compiled");
  EXPECT_EQ(good["registers"], 40);
  EXPECT_EQ(good["spill_store_bytes"], 8);
  EXPECT_EQ(good["bytes"], made.kernels[0].cubin_bytes);
  EXPECT_GE(good["compile_ms"].get<double>(), 5.0);
  const auto& bad = read["kernels"][2];
  EXPECT_EQ(bad["error"]["code"], "compile_failed");
  EXPECT_NE(bad["error"]["detail"].get<std::string>().find("told to fail"), std::string::npos);
}

TEST_F(WarmupReportTest, ATraceHasAnEventForEachStep) {
  auto made = report();
  made.kernels[0].load = std::chrono::milliseconds(2);
  const auto events = json::parse(to_trace(made), nullptr, false)["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  for (const auto& event : events) {
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), 0.0);
    EXPECT_EQ(event["pid"], 1);
  }
  EXPECT_EQ(events[0]["cat"], "compiled");
  EXPECT_GE(events[0]["dur"].get<double>(), 5000.0);
  EXPECT_EQ(events[1]["cat"], "load");
  EXPECT_EQ(events[1]["dur"], 2000.0);
}

// Viewers nest what overlaps in a row, or drop it.
TEST_F(WarmupReportTest, InARowOfTheTraceNothingOverlaps) {
  auto runtime = open(worker_options());
  add(runtime, "recovers", "crash once " + (directory_ / "crashed").string());
  for (int i = 0; i < 6; ++i) add(runtime, "good" + std::to_string(i), "slow 4");
  auto made = runtime.warmup({.architectures = {kArch}, .jobs = 2});
  ASSERT_TRUE(made);
  EXPECT_TRUE(report_of(*made, "recovers").retried);
  for (std::size_t i = 0; i < made->kernels.size(); ++i) {
    made->kernels[i].load_began = std::chrono::milliseconds(10 * i);
    made->kernels[i].load = std::chrono::milliseconds(10);
  }
  std::map<int, double> ends;
  auto events =
      json::parse(to_trace(*made), nullptr, false)["traceEvents"].get<std::vector<json>>();
  std::sort(events.begin(), events.end(), [](const json& a, const json& b) {
    return a["ts"].get<double>() < b["ts"].get<double>();
  });
  EXPECT_EQ(events.size(), 14u);
  for (const auto& event : events) {
    const double begin = event["ts"].get<double>(), end = begin + event["dur"].get<double>();
    auto& last = ends[event["tid"].get<int>()];
    EXPECT_LE(last, begin + 0.001) << event;
    last = end;
    if (event["cat"] == "compiled") {
      EXPECT_LE(end, static_cast<double>(made->time.count()) / 1e3) << event;
    }
  }
}

TEST_F(WarmupReportTest, APageStandsAloneAndEscapesWhatItShows) {
  const auto page = to_html(report());
  EXPECT_EQ(page.find("<b>&\""), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;&amp;&quot;evil?[31m"), std::string::npos);
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_NE(page.find("told to fail"), std::string::npos);
  for (const auto* fetched : {"http", "<script", "<link", "src=", "url(", "@import"})
    EXPECT_EQ(page.find(fetched), std::string::npos) << fetched;
  EXPECT_NE(page.find("class=\"bar compiled\""), std::string::npos);
  EXPECT_FALSE(to_html({}).empty());
}

TEST(WarmupPage, EachOriginHasAColourAndManyFailuresAreFolded) {
  WarmupReport report;
  for (const auto origin : {Origin::memory, Origin::disk, Origin::lower_tier, Origin::remote,
                            Origin::compiled, Origin::waited})
    report.kernels.push_back({.kernel = "k", .origin = origin, .lane = 1});
  const auto page = to_html(report);
  for (std::size_t at = page.find("class=\"bar "); at != std::string::npos;
       at = page.find("class=\"bar ", at + 1)) {
    const auto kind = page.substr(at + 11, page.find('"', at + 11) - at - 11);
    EXPECT_NE(page.find("." + kind + "{background:"), std::string::npos) << kind;
  }
  for (int i = 0; i < 10; ++i)
    report.kernels.push_back({.kernel = "k", .status = Error(ErrorCode::compile_failed, "no")});
  EXPECT_NE(to_html(report).find("<details open><summary>10 kernels"), std::string::npos);
  report.kernels.push_back(report.kernels.back());
  EXPECT_NE(to_html(report).find("<details><summary>11 kernels"), std::string::npos);
}

TEST_F(WarmupReportTest, PrometheusTextHoldsTheCounters) {
  static_cast<void>(report());
  const auto text = to_prometheus(counters_);
  for (const auto* line :
       {"kiln_compiles_total 2\n", "kiln_failed_compiles_total 1\n", "kiln_misses_total 3\n",
        "kiln_hits_total{tier=\"disk\"} 0\n", "kiln_hits_total{tier=\"lower\"} 0\n",
        "kiln_compile_seconds_count 2\n", "kiln_compile_seconds_bucket{le=\"+Inf\"} 2\n",
        "kiln_descriptors 0\n", "# TYPE kiln_compile_seconds histogram\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  // Each line is a comment or a name of ours and a number.
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.starts_with("# ") || line.starts_with("kiln_")) << line;
}

TEST_F(WarmupReportTest, AHistogramPutsEachTimeInItsBucket) {
  RuntimeCounters counters;
  counters.compile_time.counts = {1, 0, 2, 0, 0, 0, 0, 0, 0, 3};
  counters.compile_time.microseconds = 1500000;
  const auto text = to_prometheus(counters);
  for (const auto* line :
       {"_bucket{le=\"0.01\"} 1\n", "_bucket{le=\"0.03\"} 1\n", "_bucket{le=\"0.1\"} 3\n",
        "_bucket{le=\"100\"} 3\n", "_bucket{le=\"+Inf\"} 6\n", "_sum 1.500000\n", "_count 6\n"})
    EXPECT_NE(text.find(std::string("kiln_compile_seconds") + line), std::string::npos) << line;
}

}  // namespace
}  // namespace kiln::test
