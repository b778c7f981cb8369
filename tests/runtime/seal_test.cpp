// After the seal: what was warmed up is served, and what was not is let through, refused, or built
// meanwhile, with an error that says what to warm up.
#include <algorithm>
#include <thread>

#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

class SealTest : public FakeCompilerFixture {
 protected:
  /// A Runtime whose kernels differ in one field of their key, the first two of them warmed up.
  Runtime sealed(SealPolicy policy, RuntimeOptions options) {
    auto runtime = open(std::move(options));
    EXPECT_TRUE(runtime.add_source("tile.cu", "// tile\n"));
    for (int i = 0; i < 2; ++i) ids_.push_back(*runtime.add(spec(64 << i)));
    EXPECT_TRUE(runtime.warmup({.architectures = {kArch}}));
    runtime.seal(std::move(policy));
    ids_.push_back(*runtime.add(spec(96)));
    return runtime;
  }
  Runtime sealed(SealPolicy policy) { return sealed(std::move(policy), fake_options()); }
  static KernelSpec spec(int tile) {
    return {.name = "tile",
            .source = "tile.cu",
            .key = {{"tile", "i32", std::to_string(tile)}, {"stages", "i32", "4"}}};
  }

  std::vector<KernelId> ids_;
};

TEST_F(SealTest, WhatWasWarmedUpIsServedUnderEveryPolicy) {
  for (const auto policy : {OnMiss::allow, OnMiss::refuse, OnMiss::build_later}) {
    ids_.clear();
    auto runtime = sealed({.on_miss = policy});
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(runtime.artifact(ids_[static_cast<std::size_t>(i)], kArch));
    EXPECT_EQ(runtime.counters().late_requests, 0u);
  }
}

TEST_F(SealTest, ARefusalNamesTheKeyTheNearestOneAndWhatDiffers) {
  auto runtime = sealed({});
  const auto key = runtime.look_up(ids_[2], kArch)->key.hex();
  const auto warm = runtime.look_up(ids_[0], kArch)->key.hex();
  const auto late = runtime.artifact(ids_[2], kArch);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ErrorCode::sealed);
  const auto message = message_of(late);
  EXPECT_NE(message.find("kernel tile for sm_90 [key " + key + ", tile 96, stages 4]"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("tile for sm_90 [key " + warm), std::string::npos) << message;
  EXPECT_NE(message.find("what differs is tile 96, there 64."), std::string::npos) << message;
  EXPECT_EQ(begun("tile"), 2u);
  EXPECT_EQ(runtime.counters().late_requests, 1u);
  // An architecture that was not warmed up is a miss of its own.
  EXPECT_NE(
      message_of(runtime.artifact(ids_[0], "sm_90a")).find("architecture sm_90a, there sm_90"),
      std::string::npos);
}

TEST_F(SealTest, AnAllowedMissWarnsAndIsCompiled) {
  auto runtime = sealed({.on_miss = OnMiss::allow});
  EXPECT_TRUE(runtime.artifact(ids_[2], kArch));
  EXPECT_TRUE(runtime.artifact(ids_[2], kArch));
  EXPECT_EQ(warnings_with("tile 96"), 1u);
  EXPECT_EQ(runtime.counters().late_compiles, 1u);
}

TEST_F(SealTest, ACallbackGetsTheMissAndDecides) {
  std::vector<std::string> asked;
  auto runtime = sealed({.ask = [&](const Error& miss) {
    asked.push_back(miss.message());
    return asked.size() == 1 ? OnMiss::refuse : OnMiss::allow;
  }});
  EXPECT_EQ(runtime.artifact(ids_[2], kArch).error().code(), ErrorCode::sealed);
  EXPECT_TRUE(runtime.artifact(ids_[2], kArch));
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_NE(asked[0].find("tile 96"), std::string::npos);
}

TEST_F(SealTest, AMissIsBuiltMeanwhileAndServedFromThenOn) {
  auto runtime = sealed({.on_miss = OnMiss::build_later});
  EXPECT_TRUE(runtime.add_source("late.cu", "// late\n// fake: slow 100\n"));
  const auto id = *runtime.add({.name = "late", .source = "late.cu"});
  auto artifact = runtime.artifact(id, kArch);
  ASSERT_FALSE(artifact);
  EXPECT_EQ(artifact.error().code(), ErrorCode::not_ready);
  EXPECT_EQ(ended("late"), 0u) << "it did not wait";
  while (!(artifact = runtime.artifact(id, kArch))) {
    ASSERT_EQ(artifact.error().code(), ErrorCode::not_ready) << message_of(artifact);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(begun("late"), 1u);
  EXPECT_EQ(runtime.counters().late_compiles, 1u);
}

// A server that begins to serve a new sort of request must not compile all of it at once.
TEST_F(SealTest, NoMoreIsBuiltAtOnceThanThereAreJobs) {
  auto options = fake_options();
  options.jobs = 2;
  auto runtime = sealed({.on_miss = OnMiss::build_later}, options);
  std::vector<KernelId> late;
  for (int i = 0; i < 8; ++i) late.push_back(add(runtime, "late" + std::to_string(i), "slow 40"));
  const auto missing = [&] {
    return std::count_if(late.begin(), late.end(),
                         [&](KernelId id) { return !runtime.artifact(id, kArch); });
  };
  while (missing() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  int running = 0, most = 0;
  std::istringstream lines(read_file(log_));
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" // late") == std::string::npos) continue;
    running += line.starts_with("begin") ? 1 : -1;
    most = std::max(most, running);
  }
  EXPECT_EQ(most, 2);
  EXPECT_EQ(runtime.counters().late_compiles, 8u);
}

TEST_F(SealTest, AFailedLateBuildKeepsItsError) {
  auto runtime = sealed({.on_miss = OnMiss::build_later});
  const auto id = add(runtime, "bad", "fail");
  Result<Artifact> artifact = runtime.artifact(id, kArch);
  while (!artifact && artifact.error().code() == ErrorCode::not_ready) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    artifact = runtime.artifact(id, kArch);
  }
  ASSERT_FALSE(artifact);
  EXPECT_EQ(artifact.error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(begun("bad"), 1u);
}

// A compiler that never ends is no reason to keep its process for ever.
TEST_F(SealTest, ALateBuildKeepsToTheCompileLimit) {
  auto options = worker_options();
  options.compile_limit = std::chrono::milliseconds(200);
  auto runtime = sealed({.on_miss = OnMiss::build_later}, options);
  const HeldCompile held(directory_ / "may_end");
  const auto id = add(runtime, "runaway", "deaf until " + held.file());
  // The second begins when the first has been given up.
  while (begun("runaway") < 2) {
    EXPECT_EQ(runtime.artifact(id, kArch).error().code(), ErrorCode::not_ready);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(ended("runaway"), 0u);
}

TEST_F(SealTest, AWarmupGoesOnAfterTheSeal) {
  auto runtime = sealed({});
  ASSERT_TRUE(runtime.warmup({.architectures = {kArch}}));
  EXPECT_TRUE(runtime.artifact(ids_[2], kArch));
}

// A late compile keeps to the limit, on a thread that hears nothing as well as in a process.
TEST_F(SealTest, ALateCompileKeepsToItsLimit) {
  for (const bool workers : {true, false}) {
    ids_.clear();
    auto options = workers ? worker_options() : fake_options();
    options.compile_limit = std::chrono::milliseconds(1000);
    auto runtime = sealed({.on_miss = OnMiss::allow}, options);
    const std::string name = workers ? "in_worker" : "on_thread";
    const HeldCompile held(directory_ / (name + "_may_end"));
    const auto id = add(runtime, name, "deaf until " + held.file());
    const auto late = runtime.artifact(id, kArch);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code(), ErrorCode::not_ready);
    EXPECT_NE(message_of(late).find("limit of 1000 ms"), std::string::npos) << message_of(late);
    EXPECT_EQ(ended(name), 0u) << "it waited for the compile";
  }
}

}  // namespace
}  // namespace kiln::test
