// Warmups that share their work with others: whose compile begins when, who looks at what, and who
// sleeps meanwhile.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kiln/cache/store.hpp"
#include "runtime/compile_hints.hpp"
#include "runtime/job_limits.hpp"
#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

using std::chrono::milliseconds;

class WarmupHerdTest : public FakeCompilerFixture {
 protected:
  static std::string name(int i) { return "kernel" + std::to_string(i); }
  static void add_many(Runtime& runtime, int kernels, const std::string& command) {
    for (int i = 0; i < kernels; ++i) add(runtime, name(i), command);
  }
  static WarmupReport warmup(Runtime& runtime, WarmupOptions options) {
    options.architectures = {kArch};
    auto report = runtime.warmup(options);
    EXPECT_TRUE(report) << message_of(report);
    return report ? *std::move(report) : WarmupReport{};
  }
  /// Another process's turn at `id`, as far as a Runtime can tell.
  cache::KeyLock lock_of(Runtime& runtime, KernelId id) const {
    const auto found = runtime.look_up(id, kArch);
    EXPECT_TRUE(found) << message_of(found);
    auto other = cache::Store::open({.directory = cache_});
    auto attempt = other->try_lock(found->key);
    EXPECT_EQ(attempt.outcome, cache::LockOutcome::held);
    return std::move(attempt.lock);
  }
};

TEST_F(WarmupHerdTest, AKernelThatFailsOnAnEmptyCacheCostsTheOthersNothing) {
  auto runtime = open(fake_options());
  for (int i = 0; i < 6; ++i) add(runtime, name(i), i % 2 == 0 ? "fail" : "");
  const auto report = warmup(runtime, {.jobs = 2});
  EXPECT_EQ(report.failed, 3u);
  EXPECT_EQ(report.compiled, 3u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(begun(name(i)), 1u);
}

// Each key is compiled once, whoever begins with which.
TEST_F(WarmupHerdTest, RuntimesOnAnEmptyCacheShareTheirKeys) {
  constexpr int kRuntimes = 8, kShared = 16;
  std::atomic<std::size_t> compiled{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kRuntimes; ++i)
    threads.emplace_back([&] {
      auto runtime = open(fake_options());
      add_many(runtime, kShared, "slow 20");
      const auto report = warmup(runtime, {.jobs = 1});
      EXPECT_EQ(report.failed, 0u);
      compiled += report.compiled;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(compiled, std::size_t{kShared});
  for (int i = 0; i < kShared; ++i) EXPECT_EQ(begun(name(i)), 1u) << name(i);
}

// What somebody else compiles of an earlier group is not left until the later ones are done.
TEST_F(WarmupHerdTest, AnEarlierGroupIsLookedAtAgainBeforeTheLaterOnesBegin) {
  auto runtime = open(fake_options());
  const auto first = add(runtime, "first", "");
  for (int i = 0; i < 20; ++i) add(runtime, name(i), "slow 20");
  std::optional<cache::KeyLock> lock(lock_of(runtime, first));
  const auto any_began = [&] {
    for (int i = 0; i < 20; ++i)
      if (begun(name(i)) != 0) return true;
    return false;
  };
  std::thread other([&] {
    while (!any_began()) std::this_thread::sleep_for(milliseconds(1));
    lock.reset();
  });
  const auto report = warmup(runtime, {.jobs = 1, .groups = {{"first", {first}}}});
  other.join();
  EXPECT_EQ(report.compiled, 21u);
  int before = 0;
  for (int i = 0; i < 20; ++i)
    before += report_of(report, name(i)).began < report_of(report, "first").began;
  EXPECT_GE(before, 1);
  EXPECT_LE(before, 5);
}

// Threads that wait for others' keys sleep: to tell each other of every try would wake them without
// end.
TEST_F(WarmupHerdTest, ThreadsThatWaitForOthersDoNotWakeEachOther) {
  auto runtime = open(fake_options());
  std::vector<cache::KeyLock> locks;
  for (int i = 0; i < 4; ++i) locks.push_back(lock_of(runtime, add(runtime, name(i), "")));
  std::thread others([&] {
    std::this_thread::sleep_for(milliseconds(400));
    locks.clear();
  });
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const auto report = warmup(runtime, {.jobs = 4});
  ::getrusage(RUSAGE_SELF, &after);
  others.join();
  EXPECT_EQ(report.compiled, 4u);
  // 4 threads that look every 1 to 40 ms.
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 2000);
}

// A compile that leaves no memory for another keeps a thread from compiling, not from looking at
// what others have made.
TEST_F(WarmupHerdTest, AWarmupShortOfMemoryLooksAtWhatOthersHaveMade) {
  const auto memory = machine_limits(/*in_process=*/true).memory_bytes;
  if (!memory) GTEST_SKIP() << "nothing tells how much memory there is";
  std::optional<HeldCompile> small_held(directory_ / "small"), large_held(directory_ / "large");
  const auto add_small = [&](Runtime& runtime) {
    return add(runtime, "small", "deaf until " + small_held->file());
  };
  auto theirs = open(fake_options());
  auto ours = open(fake_options());
  add_small(theirs);
  const auto small = add_small(ours);
  auto store = cache::Store::open({.directory = cache_});
  CompileHints hints(&*store);
  const auto took = [&](const std::string& kernel, std::uint64_t bytes) {
    hints.note({.name = kernel, .source = kernel + ".cu"}, kArch, {milliseconds(10), bytes});
  };
  took("small", std::uint64_t{1} << 20);
  for (const auto* kernel : {"large", "larger"}) {
    add(ours, kernel, "deaf until " + large_held->file());
    took(kernel, *memory / 5 * 3);
  }
  std::thread other([&] { EXPECT_EQ(warmup(theirs, {.jobs = 1}).compiled, 1u); });
  while (begun("small") == 0) std::this_thread::sleep_for(milliseconds(1));

  bool small_came_first = false;
  const auto see = [&](const Progress& progress) {
    for (const auto& compiling : progress.compiling)
      if (compiling.starts_with("large")) small_held.reset();
    if (progress.latest == nullptr || progress.latest->kernel != "small") return;
    small_came_first = ended("large") + ended("larger") == 0;
    large_held.reset();
  };
  const auto report = warmup(ours, {.jobs = 2,
                                    .groups = {{"small", {small}}},
                                    .time_limit = std::chrono::seconds(20),
                                    .progress = see});
  small_held.reset();
  large_held.reset();
  other.join();
  EXPECT_TRUE(small_came_first);
  EXPECT_EQ(report_of(report, "small").origin, Origin::waited);
  EXPECT_EQ(begun("small"), 1u);
}

// Ranks that start together each see all of the memory.
TEST_F(WarmupHerdTest, WhatOthersCompileTakesOfTheMemory) {
  const auto memory = machine_limits(/*in_process=*/true).memory_bytes;
  if (!memory) GTEST_SKIP() << "nothing tells how much memory there is";
  HeldCompile held(directory_ / "held");
  auto theirs = open(fake_options());
  auto ours = open(fake_options());
  add(theirs, "theirs", "deaf until " + held.file());
  add_many(ours, 2, "slow 60");
  auto store = cache::Store::open({.directory = cache_});
  CompileHints hints(&*store);
  // Two of ours fit, and three in all do not.
  for (int i = 0; i < 2; ++i)
    hints.note({.name = name(i), .source = name(i) + ".cu"}, kArch,
               {milliseconds(10), *memory / 5 * 2});
  std::thread other([&] { EXPECT_EQ(warmup(theirs, {.jobs = 1}).compiled, 1u); });
  while (begun("theirs") == 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(store->locked(9), 1u);

  bool both = false;
  const auto report = warmup(ours, {.jobs = 2, .progress = [&](const Progress& progress) {
                                      both = both || progress.compiling.size() > 1;
                                    }});
  EXPECT_EQ(report.compiled, 2u);
  EXPECT_FALSE(both);
  write_file(held.file(), "");
  other.join();
  EXPECT_EQ(store->locked(9), 0u);
}

// They are outside the limit of the cache and are all read at a start.
TEST_F(WarmupHerdTest, HintsOfATunersKernelsDoNotGrowWithoutEnd) {
  constexpr int kMost = 4096;
  auto store = cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store);
  CompileHints hints(&*store);
  const auto note = [&](int kernel, int time) {
    hints.note({.name = name(kernel), .source = "tuned.cu"}, kArch, {milliseconds(time), 0});
  };
  for (int i = 0; i < kMost + 100; ++i) note(i, 10);
  EXPECT_EQ(store->records("hint").size(), std::size_t{kMost});
  EXPECT_FALSE(hints.find({.name = name(kMost), .source = "tuned.cu"}, kArch));
  note(0, 100);
  EXPECT_EQ(store->records("hint").size(), std::size_t{kMost} + 1);
}

}  // namespace
}  // namespace kiln::test
