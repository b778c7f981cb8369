// How a warmup goes about its kernels: order, groups, limits, and compiles that end badly. The fake
// NVRTC does what each kernel tells it to.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

using std::chrono::milliseconds;

class WarmupTest : public FakeCompilerFixture {
 protected:
  /// The kernels in the order that their compiles began in.
  static std::vector<std::string> order_of(const WarmupReport& report) {
    auto kernels = report.kernels;
    std::sort(kernels.begin(), kernels.end(),
              [](const auto& a, const auto& b) { return a.began < b.began; });
    std::vector<std::string> names;
    for (const auto& kernel : kernels) names.push_back(kernel.kernel);
    return names;
  }
  Result<WarmupReport> warmup(Runtime& runtime, WarmupOptions options = {}) {
    options.architectures = {kArch};
    return runtime.warmup(options);
  }
  std::filesystem::path hints() const { return cache_ / "v1" / "r" / "hint"; }
};

TEST_F(WarmupTest, WhatTookLongestIsBuiltFirst) {
  const auto run = [&](const std::string& for_long, const std::string& for_middle) {
    std::filesystem::remove_all(cache_ / "v1" / "e");
    auto runtime = open(fake_options());
    add(runtime, "short", "");
    add(runtime, "long", for_long);
    add(runtime, "middle", for_middle);
    const auto report = warmup(runtime, {.jobs = 1});
    EXPECT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->compiled, 3u);
    return order_of(*report);
  };
  const std::vector<std::string> registered = {"short", "long", "middle"};
  EXPECT_EQ(run("slow 300", "slow 30"), registered) << "nothing is known";
  // What it took before counts, whatever its source is now.
  EXPECT_EQ(run("", ""), (std::vector<std::string>{"long", "middle", "short"}));
  // Less than before is no news, so that hints do not pile up.
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(hints()), {});
  };
  EXPECT_LE(files(), 6);
  // Damage costs the order and nothing else.
  for (const auto& file : std::filesystem::directory_iterator(hints()))
    write_file(file.path(), "damaged");
  EXPECT_EQ(run("", ""), registered);
  std::filesystem::remove_all(hints());
  write_file(hints(), "in the way");
  EXPECT_EQ(run("", ""), registered);
}

TEST_F(WarmupTest, GroupsComeInTheirOrderAndBecomeReadyOneByOne) {
  // Once to compile, once to find.
  for (const bool full : {false, true}) {
    auto runtime = open(fake_options());
    add(runtime, "rest", "");
    const auto second = add(runtime, "second", "");
    const auto first = add(runtime, "first", "");
    const auto also_first = add(runtime, "also_first", "");
    EXPECT_FALSE(runtime.ready_for());
    std::vector<std::string> steps;
    const auto report =
        warmup(runtime, {.jobs = 1,
                         .groups = {{"prefill", {first, also_first}}, {"decode", {second}}},
                         .progress = [&](const Progress& progress) {
                           if (progress.latest == nullptr) return;
                           std::string step = progress.latest->kernel;
                           for (const auto* group : {"prefill", "decode", "", "unknown"})
                             if (runtime.ready_for(group)) step += std::string(" +") + group;
                           steps.push_back(step);
                         }});
    ASSERT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->hits, full ? 4u : 0u);
    EXPECT_EQ(steps,
              (std::vector<std::string>{"first", "also_first +prefill", "second +prefill +decode",
                                        "rest +prefill +decode +"}));
    EXPECT_EQ(report->kernels[1].group, "decode");
    EXPECT_FALSE(runtime.ready_for("unknown"));
  }
}

TEST_F(WarmupTest, AGroupWithAFailureIsNotReady) {
  auto runtime = open(fake_options());
  const auto bad = add(runtime, "bad", "fail");
  const auto good = add(runtime, "good", "");
  ASSERT_TRUE(warmup(runtime, {.groups = {{"bad", {bad}}, {"good", {good}}}}));
  EXPECT_FALSE(runtime.ready_for("bad"));
  EXPECT_TRUE(runtime.ready_for("good"));
  EXPECT_FALSE(runtime.ready_for());
}

TEST_F(WarmupTest, GroupsMayShareKernelsOrHaveNone) {
  auto runtime = open(fake_options());
  const auto bad = add(runtime, "bad", "fail");
  const auto good = add(runtime, "good", "");
  const auto report = warmup(
      runtime, {.groups = {{"both", {bad, good}}, {"good", {good}}, {"bad", {bad}}, {"none", {}}}});
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->kernels[1].group, "both");
  EXPECT_TRUE(runtime.ready_for("good"));
  EXPECT_TRUE(runtime.ready_for("none"));
  for (const auto* name : {"both", "bad", "unknown"}) EXPECT_FALSE(runtime.ready_for(name)) << name;
}

TEST_F(WarmupTest, WrongJobsAndGroupsAreRefused) {
  auto runtime = open(fake_options());
  const auto id = add(runtime, "a", "");
  for (const auto& [options, word] : std::vector<std::pair<WarmupOptions, std::string>>{
           {{.jobs = 1025}, "1025"},
           {{.groups = {{"g", {KernelId{7}}}}}, "kernel id 7"},
           {{.groups = {{"", {id}}}}, "no name"}}) {
    const auto report = warmup(runtime, options);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(report).find(word), std::string::npos) << message_of(report);
  }
}

TEST_F(WarmupTest, TheReportTellsWhereTheTimeWent) {
  auto runtime = open(worker_options());
  add(runtime, "first", "slow 30");
  add(runtime, "second", "eat 24");
  const auto cold = warmup(runtime, {.jobs = 1});
  ASSERT_TRUE(cold) << message_of(cold);
  const auto& first = report_of(*cold, "first");
  const auto& second = report_of(*cold, "second");
  EXPECT_GE(first.compile, milliseconds(30));
  EXPECT_GE(second.queue, first.compile);
  EXPECT_GE(second.began, first.compile);
  EXPECT_GE(second.peak_bytes, std::size_t{24} << 20);
  EXPECT_LT(first.peak_bytes, second.peak_bytes);
  EXPECT_EQ(cold->cubin_bytes, first.cubin_bytes + second.cubin_bytes);
  EXPECT_EQ(cold->jobs, 1u);
  EXPECT_EQ(cold->jobs_reason.rfind("1 job: as asked; ", 0), 0u) << cold->jobs_reason;
  EXPECT_TRUE(cold->nvrtc_loaded);
  auto again = open(worker_options());
  add(again, "first", "slow 30");
  const auto warm = warmup(again);
  ASSERT_TRUE(warm);
  EXPECT_GT(warm->kernels[0].verify.count(), 0);
  EXPECT_EQ(warm->kernels[0].compile.count(), 0);
  EXPECT_EQ(warm->jobs_reason, "");
  EXPECT_FALSE(warm->nvrtc_loaded);
}

// In a process of its own, a crash is one kernel's: named, tried once more alone, and the rest goes
// on.
TEST_F(WarmupTest, ACrashCostsOneKernelAndIsTriedOnceMore) {
  auto runtime = open(worker_options());
  add(runtime, "crashes", "crash");
  add(runtime, "recovers", "crash once " + (directory_ / "crashed").string());
  for (int i = 0; i < 6; ++i) add(runtime, "good" + std::to_string(i), "slow 2");
  const auto report = warmup(runtime, {.jobs = 2});
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->compiled, 7u);
  EXPECT_EQ(report->failed, 1u);
  const auto& crashed = report_of(*report, "crashes");
  EXPECT_TRUE(crashed.retried);
  EXPECT_EQ(crashed.status.code(), ErrorCode::compile_failed);
  const auto message = message_of(crashed.status);
  for (const std::string part : {"kernel crashes", "SIGSEGV", "sm_90"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_NE(message.find(crashed.key.hex()), std::string::npos) << message;
  EXPECT_EQ(begun("crashes"), 2u);
  EXPECT_TRUE(report_of(*report, "recovers").retried);
  EXPECT_EQ(begun("recovers"), 2u);
  EXPECT_EQ(begun("good0"), 1u);
  EXPECT_EQ(entries(), 7u);
}

TEST_F(WarmupTest, AWorkerThatWasKilledWhileIdleCostsNoCompile) {
  auto options = worker_options();
  const auto pids = directory_ / "pids";
  options.worker_command = {
      "/bin/sh", "-c",
      "echo $$ >>'" + pids.string() + "'; exec '" KILN_WORKER_PATH "' compile-worker"};
  auto runtime = open(options);
  for (const auto& name : {"first", "second"}) {
    const auto artifact = runtime.artifact(add(runtime, name, ""), kArch);
    ASSERT_TRUE(artifact) << message_of(artifact);
    const auto text = read_file(pids);
    ASSERT_GE(text.size(), 2u);
    const auto pid = std::stoi(text.substr(text.rfind('\n', text.size() - 2) + 1));
    ASSERT_GT(pid, 0) << text;
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    siginfo_t ended{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT), 0);
  }
  // One that ends by what it compiles is not asked for that again.
  ASSERT_TRUE(runtime.artifact(add(runtime, "third", ""), kArch));
  EXPECT_FALSE(runtime.artifact(add(runtime, "crashes", "crash"), kArch));
  EXPECT_EQ(begun("crashes"), 1u);
}

TEST_F(WarmupTest, AWorkerThatCannotBeStartedIsNamed) {
  auto options = fake_options();
  options.worker_command = {"/no/such/worker"};
  auto runtime = open(options);
  add(runtime, "a", "");
  const auto report = warmup(runtime);
  ASSERT_TRUE(report);
  EXPECT_NE(message_of(report->kernels[0].status).find("/no/such/worker"), std::string::npos);
}

TEST_F(WarmupTest, ACompileBeyondItsLimitIsGivenUpAndTheRestIsBuilt) {
  for (const bool workers : {true, false}) {
    auto options = workers ? worker_options() : fake_options();
    options.cache_directory = cache_ = directory_ / (workers ? "workers" : "threads");
    options.compile_limit = milliseconds(1000);
    auto runtime = open(options);
    // On a thread it hears nothing, and is left to the Runtime.
    const std::string name = workers ? "in_worker" : "on_thread";
    const HeldCompile held(directory_ / (name + "_may_end"));
    add(runtime, name, "deaf until " + held.file());
    add(runtime, "listens", "slow 60000");
    for (int i = 0; i < 3; ++i) add(runtime, "good" + std::to_string(i), "");
    const auto report = warmup(runtime, {.jobs = 1});
    ASSERT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->compiled, 3u);
    for (const auto& slow : {name, std::string("listens")}) {
      const auto& kernel = report_of(*report, slow);
      EXPECT_EQ(kernel.status.code(), ErrorCode::not_ready);
      EXPECT_NE(message_of(kernel.status).find("limit of 1000 ms"), std::string::npos)
          << message_of(kernel.status);
    }
    EXPECT_EQ(ended(name), 0u) << "the warmup did not wait for it";
    EXPECT_EQ(entries(), 3u);
  }
}

// NVRTC tells of it as of an error in the program.
TEST_F(WarmupTest, ACompileThatRanOutOfMemoryIsNotFailedForGood) {
  auto runtime = open(fake_options());
  const auto id = add(runtime, "starves", "starve " + (directory_ / "starved").string());
  const auto starved = runtime.artifact(id, kArch);
  EXPECT_EQ(starved.error().code(), ErrorCode::compile_failed);
  const auto then = runtime.artifact(id, kArch);
  EXPECT_TRUE(then) << message_of(then);
  EXPECT_EQ(begun("starves"), 2u);
}

// glibc then has no room for the stack of one.
void allow_threads(bool yes) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, yes ? std::size_t{8} << 20 : std::size_t{1} << 47);
  EXPECT_EQ(::pthread_setattr_default_np(&attributes), 0);
  ::pthread_attr_destroy(&attributes);
}

TEST_F(WarmupTest, WithoutAThreadInPlaceOfOneThatIsGivenUpItEnds) {
  for (const bool again : {false, true}) {
    auto options = fake_options();
    options.compile_limit = milliseconds(200);
    auto runtime = open(options);
    const std::string name = again ? "first" : "second";
    const HeldCompile held(directory_ / (name + "_may_end"));
    add(runtime, name, "deaf until " + held.file());
    for (int i = 0; i < 3; ++i) add(runtime, name + std::to_string(i), "");
    const auto on_progress = [&](const Progress& progress) {
      // None from the compile in hand on, or until it is given up.
      if (progress.latest != nullptr || !progress.compiling.empty())
        allow_threads(progress.latest != nullptr && again);
    };
    const auto report = warmup(runtime, {.jobs = 1, .progress = on_progress});
    allow_threads(true);
    ASSERT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->compiled, again ? 3u : 0u);
    EXPECT_EQ(report_of(*report, name).status.code(), ErrorCode::not_ready);
    if (again) continue;
    const auto& rest = report_of(*report, name + "0").status;
    EXPECT_EQ(rest.code(), ErrorCode::not_ready);
    EXPECT_NE(message_of(rest).find("ulimit -u"), std::string::npos) << message_of(rest);
  }
}

TEST_F(WarmupTest, ACancelOrADeadlineKeepsWhatIsFinished) {
  for (const bool workers : {true, false})
    for (const bool cancelled : {true, false}) {
      const auto name = std::string(workers ? "workers" : "threads") + (cancelled ? "_c" : "_d");
      auto options = workers ? worker_options() : fake_options();
      options.cache_directory = cache_ = directory_ / name;
      {
        auto runtime = open(options);
        const HeldCompile held(directory_ / (name + "_may_end"));
        add(runtime, "done", "");
        add(runtime, name, "deaf until " + held.file());
        add(runtime, "after", "");
        std::stop_source stop;
        std::thread canceller;
        const auto report =
            warmup(runtime, {.jobs = 1,
                             .time_limit = milliseconds(cancelled ? 0 : 1000),
                             .cancel = stop.get_token(),
                             .progress = [&](const Progress& progress) {
                               if (cancelled && progress.done == 1 && !canceller.joinable())
                                 canceller = std::thread([&] { stop.request_stop(); });
                             }});
        if (canceller.joinable()) canceller.join();
        ASSERT_TRUE(report) << message_of(report);
        EXPECT_EQ(ended(name), 0u) << "it waited for the compile in hand";
        EXPECT_EQ(report->stopped, cancelled ? "cancelled" : "the time limit of 1000 ms");
        EXPECT_EQ(report->compiled, 1u);
        EXPECT_EQ(report->failed, 2u);
        EXPECT_EQ(report_of(*report, "after").status.code(), ErrorCode::not_ready);
        EXPECT_FALSE(runtime.ready_for());
        // The Runtime ends with its compile still in hand.
      }
      auto next = open(options);
      add(next, "done", "");
      add(next, "after", "");
      const auto report = warmup(next);
      ASSERT_TRUE(report);
      EXPECT_EQ(report->hits, 1u);
      EXPECT_EQ(report->compiled, 1u);
    }
}

TEST_F(WarmupTest, AnEarlyCancelBeginsNothingAndALateOneStopsNothing) {
  auto runtime = open(fake_options());
  add(runtime, "a", "");
  std::stop_source stop;
  const auto late =
      warmup(runtime, {.cancel = stop.get_token(), .progress = [&](const Progress& progress) {
                         if (progress.done == 1) stop.request_stop();
                       }});
  ASSERT_TRUE(late);
  EXPECT_EQ(late->compiled, 1u);
  EXPECT_EQ(late->stopped, "") << "all was finished when it came";
  add(runtime, "b", "");
  const auto early = warmup(runtime, {.cancel = stop.get_token()});
  ASSERT_TRUE(early);
  EXPECT_EQ(early->stopped, "cancelled");
  EXPECT_EQ(early->failed, 2u);
  EXPECT_EQ(begun("b"), 0u);
}

// The real compiler, in the middle of a compile, when the process ends.
TEST_F(WarmupTest, AProcessMayEndWhileACompileIsLeftToItsRuntime) {
  KILN_REQUIRES_NVRTC();
  const int code = in_child([&] {
    ::alarm(60);
    auto runtime = open();
    if (!runtime.add_source("heavy.cu",
                            "extern \"C\" __global__ void entry(float* x) {\n  float a = x[0];\n"
                            "#pragma unroll\n"
                            "  for (int i = 0; i < 8000; ++i) a = a * x[i] + x[i + 7];\n"
                            "  *x = a;\n}\n"))
      return 2;
    if (!runtime.add({.name = "heavy", .source = "heavy.cu"})) return 3;
    std::stop_source stop;
    const auto report = runtime.warmup({.architectures = {"sm_90a"},
                                        .cancel = stop.get_token(),
                                        .progress = [&](const Progress& progress) {
                                          if (!progress.compiling.empty()) stop.request_stop();
                                        }});
    if (!report || report->stopped.empty()) return 4;
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(WarmupTest, ManyThreadsWarmUpAndAskAtOnce) {
  auto runtime = open(fake_options());
  std::vector<KernelId> ids;
  for (int i = 0; i < 12; ++i) ids.push_back(add(runtime, "k" + std::to_string(i), "slow 3"));
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      static_cast<void>(runtime.ready_for());
      static_cast<void>(runtime.counters());
      std::this_thread::yield();
    }
  });
  std::thread asker([&] {
    for (const auto id : ids) EXPECT_TRUE(runtime.artifact(id, kArch));
  });
  std::thread other([&] { EXPECT_TRUE(warmup(runtime, {.jobs = 3})); });
  EXPECT_TRUE(warmup(runtime, {.jobs = 3}));
  other.join();
  asker.join();
  stop = true;
  watcher.join();
  for (int i = 0; i < 12; ++i) EXPECT_EQ(begun("k" + std::to_string(i)), 1u) << i;
  EXPECT_TRUE(runtime.ready_for());
}

}  // namespace
}  // namespace kiln::test
