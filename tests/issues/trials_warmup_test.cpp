// Public faults of warm-ups, tried on ours: T11, T31, T34, and a herd that compiles each kernel
// once. The fake NVRTC makes the compiles cheap, slow or deaf.
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/fake_compiler.hpp"
#include "support/process.hpp"

namespace kiln::test {
namespace {

using std::chrono::milliseconds;

class WarmupTrial : public FakeCompilerFixture {
 protected:
  struct Herd {
    int processes = 1;
    int kernels = 5;
    int values = 0;
    bool isolated = false;
    bool disturb = false;  ///< the cache directory goes away midway, again and again
    bool kill = false;     ///< one process is killed midway
  };
  struct Outcome {
    int compiles = 0;  ///< by all that lived to tell
    int survivors = 0;
    std::set<std::string> keys{};
    bool nvrtc_mapped = false;
  };

  std::vector<std::string> arguments_of(const Herd& herd) const {
    std::vector<std::string> arguments = {KILN_WORKER_PATH,
                                          cache_.string(),
                                          std::to_string(herd.kernels),
                                          "0",
                                          "0",
                                          KILN_FAKE_NVRTC,
                                          std::to_string(herd.values)};
    if (herd.isolated) arguments.emplace_back("isolated");
    return arguments;
  }

  Outcome run(const Herd& herd) {
    std::vector<ProcessResult> results(static_cast<std::size_t>(herd.processes));
    const pid_t victim = herd.kill ? start_victim(herd) : -1;
    std::vector<std::thread> runners;
    for (auto& result : results)
      runners.emplace_back([&] {
        result = run_process({.arguments = arguments_of(herd), .environment = this_environment()});
      });
    std::atomic<bool> over{false};
    std::thread disturber;
    if (herd.disturb)
      disturber = std::thread([&] {
        while (!over) {
          std::error_code ignored;
          std::filesystem::remove_all(cache_, ignored);
          std::this_thread::sleep_for(milliseconds(7));
        }
      });
    if (herd.kill) {
      // The others have begun, and found its keys locked.
      while (entries() == 0) std::this_thread::sleep_for(milliseconds(1));
      ::kill(victim, SIGKILL);
      EXPECT_EQ(wait_for(victim), 128 + SIGKILL);
    }
    for (auto& runner : runners) runner.join();
    over = true;
    if (disturber.joinable()) disturber.join();

    Outcome outcome;
    for (const auto& result : results) {
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
      const auto json = nlohmann::json::parse(result.out, nullptr, false);
      if (!json.is_object()) continue;
      ++outcome.survivors;
      outcome.compiles += json["compiles"].get<int>();
      outcome.nvrtc_mapped |= json["nvrtc_mapped"].get<bool>();
      EXPECT_EQ(json["keys"].size(), static_cast<std::size_t>(herd.kernels));
      EXPECT_TRUE(json["errors"].empty()) << json["errors"];
      for (const auto& key : json["keys"]) outcome.keys.insert(key.get<std::string>());
    }
    return outcome;
  }

  /// A process before the herd, in the middle of compiles that never end, whose locks it holds.
  pid_t start_victim(const Herd& herd) const {
    auto arguments = arguments_of(herd);
    const pid_t victim = start_child([&] {
      ::setenv("KILN_FAKE_NVRTC_MS", "600000", 1);
      ::execv(arguments[0].c_str(), detail::pointers_to(arguments).data());
      return 127;
    });
    while (lines_with("begin") == 0) std::this_thread::sleep_for(milliseconds(1));
    return victim;
  }

  std::size_t lines_with(const std::string& start) const {
    std::istringstream lines(read_file(log_));
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line);) count += line.starts_with(start);
    return count;
  }

  void clear() {
    std::filesystem::remove_all(cache_);
    std::filesystem::remove(log_);
  }
};

// T11: processes that start together, a cache that is deleted under them, and a killed owner.
TEST_F(WarmupTrial, T11_ProcessesThatStartTogetherCompileOnceAndSurviveEverything) {
#ifdef KILN_SANITIZE
  constexpr int kProcesses = 8, kRounds = 3;
#else
  constexpr int kProcesses = 32, kRounds = 6;
#endif
  for (int round = 0; round < kRounds; ++round) {
    clear();
    const Herd herd{.processes = kProcesses, .disturb = round % 3 == 1, .kill = round % 3 == 2};
    const auto outcome = run(herd);
    EXPECT_EQ(outcome.survivors, kProcesses) << "round " << round;
    EXPECT_EQ(outcome.keys.size(), 5u) << "round " << round;
    if (!herd.disturb && !herd.kill) {
      EXPECT_EQ(lines_with("begin"), 5u) << "round " << round;
      EXPECT_EQ(outcome.compiles, 5) << "round " << round;
    }
    EXPECT_TRUE(dot_names_below(cache_).empty()) << "a killed writer left something behind";
  }
}

TEST_F(WarmupTrial, FortyEightKernelsAndManyValuesAreFortyEightCompiles) {
  for (const bool isolated : {false, true})
    for (const int processes : {1, 2, 8}) {
      clear();
      const Herd herd{.processes = processes, .kernels = 48, .values = 700, .isolated = isolated};
      EXPECT_EQ(run(herd).compiles, 48) << processes;
      EXPECT_EQ(lines_with("begin"), 48u) << processes;
      const auto warm = run(herd);
      EXPECT_EQ(warm.compiles, 0) << processes;
      EXPECT_FALSE(warm.nvrtc_mapped) << processes;
      EXPECT_EQ(lines_with("begin"), 48u) << processes;
    }
}

TEST_F(WarmupTrial, AKilledProcessCostsWhatItHadInHandAndNoMore) {
  for (const bool isolated : {false, true}) {
    clear();
    const auto outcome = run({.processes = 4, .kernels = 48, .isolated = isolated, .kill = true});
    EXPECT_EQ(outcome.keys.size(), 48u);
    EXPECT_EQ(entries(), 48u);
    // It had at most one compile in hand for each processor.
    EXPECT_LE(lines_with("begin"), 48u + std::thread::hardware_concurrency());
  }
}

// T31: after the seal nothing compiles, whatever is asked, and a miss says what to register.
TEST_F(WarmupTrial, T31_NothingIsCompiledAfterTheSeal) {
  auto runtime = open(fake_options());
  ASSERT_TRUE(runtime.add_source("attention.cu", "// attention\n"));
  const auto spec = [](int page, int type, bool sinks) {
    return KernelSpec{.name = "attention",
                      .source = "attention.cu",
                      .key = {{"page", "i32", std::to_string(page)},
                              {"type", "i32", std::to_string(type)},
                              {"sinks", "bool", sinks ? "true" : "false"}}};
  };
  for (const int page : {16, 64, 128})
    for (const int type : {0, 1})
      for (const bool sinks : {false, true}) ASSERT_TRUE(runtime.add(spec(page, type, sinks)));
  ASSERT_TRUE(runtime.warmup({.architectures = {kArch}}));
  ASSERT_TRUE(runtime.ready_for());
  runtime.seal();
  const auto before = runtime.counters();
  for (int call = 0; call < 500; ++call) {
    const int pages[] = {16, 64, 128};
    const auto id = runtime.add(spec(pages[call * 7 % 3], call * 5 % 2, call % 4 == 0));
    ASSERT_TRUE(id);
    EXPECT_TRUE(runtime.artifact(*id, kArch)) << call;
  }
  EXPECT_EQ(runtime.counters(), before) << "something was compiled, read or missed";
  const auto missed = runtime.artifact(*runtime.add(spec(32, 1, true)), kArch);
  ASSERT_FALSE(missed);
  EXPECT_EQ(missed.error().code(), ErrorCode::sealed);
  EXPECT_NE(message_of(missed).find("what differs is page 32, there"), std::string::npos)
      << message_of(missed);
  EXPECT_EQ(begun("attention"), 12u);
}

// T34: a kernel that takes for ever. It holds up neither the process nor its end, ready stays
// false, and the next start finds what was finished.
TEST_F(WarmupTrial, T34_ASlowKernelStallsNothingAndLosesNothing) {
  for (const bool workers : {true, false}) {
    clear();
    const auto options = workers ? worker_options() : fake_options();
    std::size_t finished = 0;
    {
      auto runtime = open(options);
      add(runtime, "slow", "slow 90000");
      for (int i = 0; i < 8; ++i) add(runtime, "quick" + std::to_string(i), "");
      std::stop_source stop;
      std::atomic<int> beats{0};
      std::atomic<bool> over{false};
      std::chrono::steady_clock::duration longest_gap{};
      std::thread heart([&] {
        for (auto last = std::chrono::steady_clock::now(); !over;) {
          ++beats;
          EXPECT_FALSE(runtime.ready_for());
          std::this_thread::sleep_for(milliseconds(5));
          const auto now = std::chrono::steady_clock::now();
          longest_gap = std::max(longest_gap, now - last);
          last = now;
        }
      });
      std::size_t most = 0;
      const auto report = runtime.warmup({.architectures = {kArch},
                                          .jobs = 2,
                                          .cancel = stop.get_token(),
                                          .progress = [&](const Progress& progress) {
                                            EXPECT_GE(progress.done, most);
                                            most = progress.done;
                                            if (most < 8) return;
                                            const int then = beats;
                                            // The slow one is in hand all this time.
                                            while (beats < then + 20) std::this_thread::yield();
                                            stop.request_stop();
                                          }});
      over = true;
      heart.join();
      EXPECT_LT(longest_gap, std::chrono::seconds(1));
      ASSERT_TRUE(report) << message_of(report);
      EXPECT_EQ(report->compiled, 8u);
      EXPECT_EQ(report_of(*report, "slow").status.code(), ErrorCode::not_ready);
      EXPECT_EQ(ended("slow"), 0u);
      finished = report->compiled;
      // A late miss on one rank, while the others wait for it: an answer at once.
      runtime.seal({.on_miss = OnMiss::build_later});
      const auto late = runtime.artifact(add(runtime, "late", "slow 90000"), kArch);
      ASSERT_FALSE(late);
      EXPECT_EQ(late.error().code(), ErrorCode::not_ready);
    }
    auto next = open(options);
    for (int i = 0; i < 8; ++i) add(next, "quick" + std::to_string(i), "");
    const auto report = next.warmup({.architectures = {kArch}});
    ASSERT_TRUE(report);
    EXPECT_EQ(report->hits, finished);
    EXPECT_TRUE(next.ready_for());
  }
}

}  // namespace
}  // namespace kiln::test
